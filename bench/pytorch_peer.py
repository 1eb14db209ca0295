#!/usr/bin/env python3
"""Times training with PyTorch itself: the peers that Cleave is compared with.

Every device is one process with one thread on a core of its own. A run prints
one JSON object: its settings, the losses, the step times in milliseconds
after the warm-up, and tokens (or samples) per second by their median. A run
that fails prints the object with "failed": the reason, one line on standard
error, and ends with exit code 1.

  pytorch_peer.py one                          one device, microbatches
  pytorch_peer.py one --whole-batch --compile  one device at its best
  pytorch_peer.py copies 2                     two such runs at once: the limit
  pytorch_peer.py pipeline --devices 2 --schedule 1f1b
  pytorch_peer.py ddp --devices 2 --network mlp
  pytorch_peer.py check                        pipelines train as one device

Run it with the Python that has torch. Every process makes the same batch
from the seed and trains on it in every step, so that the loss falls.
"""

import argparse
import ctypes
import itertools
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

WORKER = pathlib.Path(__file__).resolve().with_name("pytorch_peer_worker.py")
NETWORKS = {  # name: option: default
    "gpt": {"width": 512, "depth": 8, "heads": 8, "length": 256,
            "vocabulary": 8192, "batch": 16, "microbatches": 8},
    "mlp": {"width": 512, "depth": 16, "inputs": 784, "classes": 10,
            "batch": 256, "microbatches": 8},
}
SCHEDULES = {  # name: (stages per device by default, those allowed)
    "gpipe": (1, [1]),
    "1f1b": (1, [1]),
    "interleaved": (2, range(1, 65)),
    "interleaved-zb": (2, range(1, 65)),
    "zb-v": (2, [2]),
    "looped-bfs": (2, range(1, 65)),
}
SPLIT_BACKWARD = ["interleaved-zb", "zb-v"]
GRACE_S = 2  # after a first failure, for the others to say what they saw


class Failure(Exception):
    """A run did not finish; the text is one line and says why."""


# The cut


def layer_costs(net, units):
    """The cost of every layer, in units of width squared multiplications.

    At the GPT's default size these are the measured 0.2, 5.5, 8 and 18. The
    MLP's first layer needs no gradient of its input: a third less.
    """
    width, depth = net["width"], net["depth"]
    if net["name"] == "gpt":
        embedding, attention, mlp, head = units or (
            0.2, 4 + 3 * net["length"] / width, 8,
            1.125 * net["vocabulary"] / width)
        return [embedding, *[attention, mlp] * depth, head]
    first, hidden, last = units or (
        net["inputs"] / width * 2 / 3, 1, net["classes"] / width)
    return [first, *[hidden] * (depth - 1), last]


def best_cut(costs, stages):
    """How many layers each stage gets: the largest stage as cheap as can be,
    and among such cuts the one with the least sum of squares."""
    sums = list(itertools.accumulate(costs, initial=0))

    def least(score, join, allowed):
        """The best (score, cut) of all cuts into stages that are allowed."""
        best = {0: (0, [])}
        for _ in range(stages):
            longer = {}
            for end in range(1, len(sums)):
                options = [
                    (join(best[start][0], score(sums[end] - sums[start])),
                     best[start][1] + [end - start])
                    for start in best
                    if start < end and allowed(sums[end] - sums[start])]
                if options:
                    longer[end] = min(options)
            best = longer
        return best[len(costs)]

    largest, _ = least(lambda cost: cost, max, lambda cost: True)
    return least(lambda cost: cost * cost, lambda a, b: a + b,
                 lambda cost: cost <= largest * (1 + 1e-9))[1]


# Processes


def cores_for(devices):
    """A core for every device, as far apart as can be: hardware threads of one
    core only when there is no other way, and neighbours last, because a
    virtual machine may hide which of its cores share one."""
    def siblings(cpu):
        path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            return pathlib.Path(path).read_text()
        except OSError:
            return str(cpu)

    usable = sorted(os.sched_getaffinity(0))
    if devices > len(usable):
        raise Failure(f"{devices} devices need as many cores; there are "
                      f"{len(usable)}")
    first_of = {}
    for cpu in usable:
        first_of.setdefault(siblings(cpu), cpu)
    whole = sorted(first_of.values())
    chosen = whole if devices <= len(whole) else usable
    apart = len(chosen) // devices
    return [chosen[rank * apart] for rank in range(devices)]


def die_with(parent):
    """A function for the child: the kernel ends it when its parent ends."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    pr_set_pdeathsig = 1

    def arrange():
        prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return arrange


def environment(precision):
    """What the workers see: one thread, Gloo on loopback, no compiler pool."""
    result = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1",
                  GLOO_SOCKET_IFNAME="lo", TORCHINDUCTOR_COMPILE_THREADS="1")
    if precision != "fp32" and amx_is_broken():
        result["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
    return result


def amx_is_broken():
    """True on machines that promise AMX and die of it in the first multiply."""
    if "amx_tile" not in pathlib.Path("/proc/cpuinfo").read_text():
        return False
    multiply = ("import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); "
                "a @ a")
    probe = subprocess.run([sys.executable, "-c", multiply],
                           stdin=subprocess.DEVNULL, capture_output=True,
                           check=False)
    return probe.returncode == -signal.SIGILL


class Workers:
    """The processes of one run. Leaving the block ends them all, with what
    they started; should this process be killed, the kernel ends them."""

    def __init__(self, jobs, precision):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.folder = tempfile.TemporaryDirectory()
        self.processes = []
        self.precision = precision
        self.jobs = jobs

    def __enter__(self):
        variables = environment(self.precision)
        for rank, job in enumerate(self.jobs):
            self.start(rank, dict(job, rank=rank, socket=self.listener.fileno(),
                                  port=self.listener.getsockname()[1]),
                       variables)
        return self

    def start(self, rank, job, variables):
        with open(self.path(rank, "out"), "wb") as out, \
             open(self.path(rank, "err"), "wb") as err:
            process = subprocess.Popen(
                [sys.executable, WORKER], env=variables,
                stdin=subprocess.PIPE, stdout=out, stderr=err,
                pass_fds=[self.listener.fileno()] if rank == 0 else [],
                start_new_session=True, preexec_fn=die_with(os.getpid()))
        self.processes.append(process)
        try:
            process.stdin.write(json.dumps(job).encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended already: wait() tells why

    def path(self, rank, stream):
        return pathlib.Path(self.folder.name) / f"{rank}.{stream}"

    def __exit__(self, *_):
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self.listener.close()
        self.folder.cleanup()

    def wait(self, deadline_s):
        """Every worker's result; Failure when one fails or time runs out."""
        until = time.monotonic() + deadline_s
        failed = []
        while time.monotonic() < until:
            codes = [process.poll() for process in self.processes]
            if all(code == 0 for code in codes):
                return [self.result(rank) for rank in range(len(codes))]
            new = [rank for rank, code in enumerate(codes)
                   if code not in (None, 0) and rank not in failed]
            if new and not failed:
                until = min(until, time.monotonic() + GRACE_S)
            failed += new
            time.sleep(0.05)
        if failed:
            raise Failure(self.reason(failed))
        raise Failure(f"no result after the deadline of {deadline_s:g} s")

    def result(self, rank):
        lines = self.path(rank, "out").read_text().splitlines()
        return json.loads(lines[-1])

    def reason(self, failed):
        """What the first to fail said, or better, one that raised an error of
        its own rather than losing a neighbour."""
        said = [self.last_words(rank) for rank in failed]
        return next((text for text in said if "Connection" not in text), said[0])

    def last_words(self, rank):
        code = self.processes[rank].returncode
        if code < 0:
            return f"rank {rank}: ended by {signal.Signals(-code).name}"
        try:
            words = self.result(rank)["error"]
        except (IndexError, KeyError, ValueError):  # it had no time to say
            words = self.path(rank, "err").read_text(errors="replace")
            words = (words.strip() or "no error message").splitlines()[-1]
        return f"rank {rank}: {' '.join(words.split())[:400]}"


# Runs


def run(options, kind, devices):
    """The results of all processes of a run."""
    jobs = [dict(options, kind=kind, devices=devices, core=core)
            for core in cores_for(devices)]
    with Workers(jobs, options["precision"]) as workers:
        return workers.wait(options["deadline"])


def speed(options, step_ms):
    """Median step and what it trains per second."""
    net = options["network"]
    length = net.get("length", 1)
    unit = "tokens_per_s" if net["name"] == "gpt" else "samples_per_s"
    median = statistics.median(step_ms)
    return {"step_ms": [round(ms, 3) for ms in step_ms],
            "median_ms": round(median, 3),
            unit: round(options["batch"] * length * 1000 / median, 1)}


def report_slowest(options, results):
    """One report of processes that train together: the steps of the slowest.

    Each process times its own steps, without a barrier; in the steady state
    all have the same period, so the largest median is the run's step time.
    """
    slowest = max(results, key=lambda r: statistics.median(r["step_ms"]))
    seen = [r["losses"] for r in results if r["losses"][0] is not None]
    losses = [statistics.mean(step) for step in zip(*seen)]
    return {"torch": slowest["torch"], "losses": losses,
            **speed(options, slowest["step_ms"])}


def one(options):
    return report_slowest(options, run(options, "one", 1))


def copies(options):
    results = run(options, "one", options["copies"])
    reports = [speed(options, result["step_ms"]) for result in results]
    unit = next(key for key in reports[0] if key.endswith("_per_s"))
    return {"torch": results[0]["torch"], "losses": results[0]["losses"],
            "each": reports,
            unit: round(sum(report[unit] for report in reports), 1)}


def pipeline(options):
    return report_slowest(
        options, run(options, "pipeline", options["devices"]))


def ddp(options):
    if options["batch"] % options["devices"]:
        raise Failure("--batch must be a multiple of --devices")
    return report_slowest(options, run(options, "ddp", options["devices"]))


def with_cut(options):
    """The options with the stages per device and the cut filled in."""
    usual, allowed = SCHEDULES[options["schedule"]]
    per_device = options["stages_per_device"] or usual
    if per_device not in allowed:
        raise Failure(f"{options['schedule']} cannot have {per_device} stages "
                      "per device")
    if options["compile"] and options["schedule"] in SPLIT_BACKWARD:
        raise Failure("PyTorch cannot split the backward of compiled stages, "
                      f"as {options['schedule']} does")
    stages = per_device * options["devices"]
    try:
        costs = layer_costs(options["network"], options.pop("costs"))
    except ValueError:
        raise Failure("--costs needs four numbers for gpt, three for mlp")
    if stages > len(costs):
        raise Failure(f"{len(costs)} layers cannot be cut into {stages} stages")
    cut = options["cut"] or best_cut(costs, stages)
    if len(cut) != stages or sum(cut) != len(costs) or min(cut) < 1:
        raise Failure(f"a cut of {len(costs)} layers into {stages} stages is "
                      f"needed, not {','.join(map(str, cut))}")
    return dict(options, stages_per_device=per_device, cut=cut)


# The check


CHECK_SIZES = {
    "gpt": {"width": 64, "depth": 2, "heads": 4, "length": 16,
            "vocabulary": 256, "batch": 8, "microbatches": 4},
    "mlp": {"width": 64, "depth": 4, "inputs": 32, "classes": 10,
            "batch": 32, "microbatches": 4},
}
TOLERANCE = 1e-4


def check(options):
    """Every way to train gives the losses of one device, on tiny networks."""
    cases = {}
    for name, sizes in CHECK_SIZES.items():
        base = dict(options, **settings(name, sizes), whole_batch=False,
                    compile=False, precision="fp32", seed=1,
                    learning_rate=1e-3, steps=3, warmup=1)
        expected = one(base)["losses"]
        whole = one(dict(base, whole_batch=True))
        cases[f"{name} whole batch"] = distance(whole["losses"], expected)
        replicas = ddp(dict(base, devices=2))
        cases[f"{name} ddp"] = distance(replicas["losses"], expected)
        for schedule in SCHEDULES:
            cases[f"{name} {schedule}"] = check_schedule(
                dict(base, devices=2, schedule=schedule), expected)
    wrong = [case for case, far in cases.items()
             if not isinstance(far, float) or not far <= TOLERANCE]
    report = {"tolerance": TOLERANCE, "largest_difference": cases}
    if wrong:
        report["failed"] = "not as one device: " + ", ".join(wrong)
    return report


def check_schedule(options, expected):
    try:
        planned = with_cut(dict(options, stages_per_device=None, cut=None,
                                costs=None))
        return distance(pipeline(planned)["losses"], expected)
    except Failure as failure:
        return str(failure)


def distance(losses, expected):
    return max(abs(a - b) for a, b in zip(losses, expected, strict=True))


# The command line


def settings(name, given):
    """The network and the batch, with that network's defaults filled in."""
    values = {option: given.get(option) or default
              for option, default in NETWORKS[name].items()}
    batch, microbatches = values.pop("batch"), values.pop("microbatches")
    return {"network": {"name": name, **values}, "batch": batch,
            "microbatches": microbatches}


def integers(text):
    return [int(word) for word in text.split(",")]


def decimals(text):
    return [float(word) for word in text.split(",")]


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def network_options():
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("network and batch")
    group.add_argument("--network", choices=NETWORKS, default="gpt")
    for option in dict.fromkeys(itertools.chain(*NETWORKS.values())):
        usual = ", ".join(f"{name} {defaults[option]}"
                          for name, defaults in NETWORKS.items()
                          if option in defaults)
        group.add_argument(f"--{option}", type=positive, metavar="N",
                           help=f"default: {usual}")
    return parser


def training_options():
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("training")
    group.add_argument(
        "--precision", choices=["fp32", "bf16", "bf16-autocast"],
        default="fp32",
        help="bf16: parameters and messages in bf16, AdamW on fp32 copies")
    group.add_argument("--compile", action="store_true",
                       help="torch.compile (not with zero-bubble schedules)")
    group.add_argument("--learning-rate", type=float, default=1e-3,
                       metavar="X", help="default 0.001")
    group.add_argument("--seed", type=int, default=1, metavar="N",
                       help="of the weights and the batch (default 1)")
    group.add_argument("--steps", type=positive, default=5, metavar="N",
                       help="timed steps (default 5)")
    group.add_argument("--warmup", type=positive, default=2, metavar="N",
                       help="steps before them, at least 1 (default 2)")
    return parser


def deadline_option():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--deadline", type=float, default=900, metavar="S",
                        help="seconds a run may take (default 900)")
    return parser


def whole_batch_option():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--whole-batch", action="store_true",
                        help="no microbatches: one forward and one backward")
    return parser


def devices_option():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--devices", type=positive, default=2, metavar="N",
                        help="processes, one core each (default 2)")
    return parser


def command_line():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="run", required=True)
    common = [network_options(), training_options(), deadline_option()]
    whole, devices = whole_batch_option(), devices_option()
    commands.add_parser("one", parents=[*common, whole],
                        help="one device, eager or compiled")
    several = commands.add_parser("copies", parents=[*common, whole],
                                  help="independent one-device runs at once")
    several.add_argument("copies", type=positive, metavar="N")
    add_pipeline(commands, [*common, devices])
    commands.add_parser("ddp", parents=[*common, whole, devices],
                        help="DistributedDataParallel over Gloo")
    commands.add_parser("check", parents=[deadline_option()],
                        help="compare every schedule with one device")
    return parser


def add_pipeline(commands, parents):
    parser = commands.add_parser("pipeline", parents=parents,
                                 help="torch.distributed.pipelining over Gloo")
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--stages-per-device", type=positive, metavar="N",
                        help="default: 1 for gpipe and 1f1b, else 2")
    parser.add_argument("--cut", type=integers, metavar="N,N,...",
                        help="layers per stage; default: by least largest cost")
    parser.add_argument("--costs", type=decimals, metavar="X,X,...",
                        help="gpt: embedding, attention, mlp, head; mlp: first, "
                        "hidden, last; default: by their matrix sizes")


def plan(arguments):
    """The options of a run, checked and complete."""
    given = {key: value for key, value in vars(arguments).items()
             if key != "run"}
    if arguments.run == "check":
        return given
    name = given.pop("network")
    known = set(itertools.chain(*NETWORKS.values()))
    sizes = {key: given.pop(key) for key in known}
    strange = [key for key, value in sizes.items()
               if value and key not in NETWORKS[name]]
    if strange:
        raise Failure(f"{name} has no --{strange[0]}")
    options = {**settings(name, sizes), "whole_batch": False, **given}
    check_sizes(options)
    return with_cut(options) if arguments.run == "pipeline" else options


def check_sizes(options):
    net = options["network"]
    if options["batch"] % options["microbatches"]:
        raise Failure("--batch must be a multiple of --microbatches")
    if net["width"] % net.get("heads", 1):
        raise Failure("--width must be a multiple of --heads")


def main():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda code, _: sys.exit(128 + code))
    arguments = command_line().parse_args()
    runs = {"one": one, "copies": copies, "pipeline": pipeline, "ddp": ddp,
            "check": check}
    report = {"run": arguments.run}
    try:
        options = plan(arguments)
        report |= options
        report |= runs[arguments.run](options)
    except Failure as failure:
        report["failed"] = str(failure)
    print(json.dumps(report))
    if "failed" in report:
        print(f"pytorch_peer.py: {arguments.run} failed: {report['failed']}",
              file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
