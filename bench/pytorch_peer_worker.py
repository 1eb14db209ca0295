"""One process of pytorch_peer.py: trains on one core and prints its times.

Reads one job (a JSON object) from standard input and prints one JSON object,
the result or the error, as the last line of standard output. Started by pytorch_peer.py only; what the
job may hold is decided there.
"""

import inspect
import json
import os
import sys
import time
from datetime import timedelta
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

INITIAL_SPREAD = 0.02  # of the GPT's weights, as in cleave/model/gpt.cpp
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16,
          "bf16-autocast": torch.float32}
SCHEDULES = {
    "gpipe": pipelining.ScheduleGPipe,
    "1f1b": pipelining.Schedule1F1B,
    "interleaved": pipelining.ScheduleInterleaved1F1B,
    "interleaved-zb": pipelining.ScheduleInterleavedZeroBubble,
    "zb-v": pipelining.ScheduleZBVZeroBubble,
    "looped-bfs": pipelining.ScheduleLoopedBFS,
}


# Networks: the same arithmetic as cleave/model/gpt.cpp and mlp.cpp, in layers
# that a cut may fall between.


def linear(inputs, outputs, bias=True):
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, 0, INITIAL_SPREAD)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class Embedding(nn.Module):
    """Token numbers [n, length] to vectors [n, length, width]."""

    def __init__(self, vocabulary, length, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))
        self.position = nn.Parameter(torch.empty(length, width))
        nn.init.normal_(self.weight, 0, INITIAL_SPREAD)
        nn.init.normal_(self.position, 0, INITIAL_SPREAD)

    def forward(self, tokens):
        positions = self.position[:tokens.size(1)]
        return functional.embedding(tokens, self.weight) + positions


class Attention(nn.Module):
    """Norm, causal attention, residual."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = linear(width, 3 * width)
        self.out = linear(width, width)

    def forward(self, x):
        n, length, width = x.shape
        query, key, value = (self.qkv(self.norm(x))
                             .view(n, length, 3, self.heads, width // self.heads)
                             .permute(2, 0, 3, 1, 4).unbind(0))
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(n, length, width))


class FeedForward(nn.Module):
    """Norm, four times wider, GELU, narrow again, residual."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = linear(width, 4 * width)
        self.down = linear(4 * width, width)

    def forward(self, x):
        wide = functional.gelu(self.up(self.norm(x)), approximate="tanh")
        return x + self.down(wide)


class Head(nn.Module):
    """Norm, then a score for every token; not tied, no bias."""

    def __init__(self, width, vocabulary):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scores = linear(width, vocabulary, bias=False)

    def forward(self, x):
        return self.scores(self.norm(x))


def gpt_makers(net):
    """A function for every layer, that makes it."""
    blocks = [lambda: Attention(net.width, net.heads),
              lambda: FeedForward(net.width)] * net.depth
    return [lambda: Embedding(net.vocabulary, net.length, net.width),
            *blocks,
            lambda: Head(net.width, net.vocabulary)]


def mlp_makers(net):
    def first():
        return nn.Sequential(
            nn.Flatten(), nn.Linear(net.inputs, net.width), nn.ReLU())

    def hidden():
        return nn.Sequential(nn.Linear(net.width, net.width), nn.ReLU())

    return [first, *[hidden] * (net.depth - 1),
            lambda: nn.Linear(net.width, net.classes)]


class Layers(nn.Sequential):
    """Some consecutive layers, under autocast or not."""

    def __init__(self, layers, autocast):
        super().__init__(*layers)
        self.autocast = autocast

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            return super().forward(x)


MAKERS = {"gpt": gpt_makers, "mlp": mlp_makers}


def make_layers(job, numbers=None):
    """The layers with these numbers (all by default) as one module.

    Each layer has a seed of its own, so a process makes only the layers it
    trains and they still start as they do on one device.
    """
    makers = MAKERS[job.network.name](job.network)
    layers = []
    for number in range(len(makers)) if numbers is None else numbers:
        torch.manual_seed(job.seed + number)
        layers.append(makers[number]())
    module = Layers(layers, job.precision == "bf16-autocast")
    return module.to(DTYPES[job.precision])


def make_model(job, numbers=None):
    model = make_layers(job, numbers)
    if job.compile:
        model.compile()
    return model


def make_batch(job):
    """(inputs, targets): one batch, used in every step, so the loss falls."""
    net = job.network
    generator = torch.Generator().manual_seed(job.seed)
    if net.name == "gpt":
        tokens = torch.randint(net.vocabulary, (job.batch, net.length + 1),
                               generator=generator)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    inputs = torch.randn(job.batch, net.inputs, generator=generator)
    targets = torch.randint(net.classes, (job.batch,), generator=generator)
    return inputs.to(DTYPES[job.precision]), targets


def mean_loss(scores, targets):
    return functional.cross_entropy(scores.flatten(0, -2).float(),
                                    targets.flatten())


# Optimizers


class MasterAdamW:
    """AdamW on fp32 copies of bf16 parameters."""

    def __init__(self, parameters, learning_rate):
        self.parameters = parameters
        self.masters = [p.detach().float() for p in parameters]
        self.inner = torch.optim.AdamW(
            self.masters, lr=learning_rate, fused=True)

    @torch.no_grad()
    def step(self):
        for master, parameter in zip(self.masters, self.parameters):
            master.grad = parameter.grad.float()
        self.inner.step()
        torch._foreach_copy_(self.parameters, self.masters)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None


def make_optimizer(job, modules):
    """AdamW as fast as PyTorch has it: fused beats foreach on CPUs."""
    parameters = [p for module in modules for p in module.parameters()]
    if job.precision == "bf16":
        return MasterAdamW(parameters, job.learning_rate)
    return torch.optim.AdamW(parameters, lr=job.learning_rate, fused=True)


# Kinds of run: each returns a function that trains one step and returns the
# loss before it (None where this process does not see it).


def accumulate(model, pieces, share):
    """Adds the pieces' gradients, each for its share of the batch's loss;
    returns their part of that loss."""
    total = 0.0
    for inputs, targets in pieces:
        loss = mean_loss(model(inputs), targets) * share
        loss.backward()
        total += loss.item()
    return total


def split(batch, count):
    return list(zip(*(whole.chunk(count) for whole in batch)))


def one_device(job):
    model = make_model(job)
    optimizer = make_optimizer(job, [model])
    pieces = split(make_batch(job), 1 if job.whole_batch else job.microbatches)

    def step():
        loss = accumulate(model, pieces, 1 / len(pieces))
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def data_parallel(job):
    """Each replica trains its share of the batch, in microbatches of the same
    size as elsewhere; gradients are averaged during the last one's backward."""
    model = DistributedDataParallel(make_model(job),
                                    gradient_as_bucket_view=True)
    optimizer = make_optimizer(job, [model])
    mine = split(make_batch(job), job.devices)[job.rank]
    pieces = split(mine, 1 if job.whole_batch else
                   max(1, job.microbatches // job.devices))
    share = 1 / len(pieces)

    def step():
        with model.no_sync():
            loss = accumulate(model, pieces[:-1], share)
        loss += accumulate(model, pieces[-1:], share)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def stage_numbers(job):
    """The stages of this process: a V for ZB-V, else round and round."""
    if job.schedule == "zb-v":
        return [job.rank, 2 * job.devices - 1 - job.rank]
    return [job.rank + turn * job.devices
            for turn in range(job.stages_per_device)]


def boundaries(job):
    """What one microbatch is before every layer and after the last one.

    Given to the stages, which otherwise ask each other in the first step and
    need NumPy for it. Found by a forward pass through one layer at a time.
    """
    inputs, _ = make_batch(job)
    found = [inputs.chunk(job.microbatches)[0]]
    for number in range(sum(job.cut)):
        with torch.no_grad():
            output = make_layers(job, [number])(found[-1])
        found.append(output.requires_grad_())
    return found


class Stage(pipelining.PipelineStage):
    """Torch 2.11 greets the stages beside this one before the first step. In
    a V one of them is on the same device, and Gloo has no way to itself ("Pair
    is not connected"), so that greeting is left out; 2.13 never sends it."""

    def _get_init_p2p_neighbors_ops(self):
        return [op for op in super()._get_init_p2p_neighbors_ops()
                if op.group_peer != self.group_rank]


def make_stage(job, number, between):
    first = sum(job.cut[:number])
    end = first + job.cut[number]
    return Stage(
        make_model(job, range(first, end)), number, len(job.cut),
        torch.device("cpu"), input_args=between[first],
        output_args=between[end])


def make_schedule(job, stages):
    """The loss is divided by the microbatches here, which is cheaper than
    letting the schedule scale every gradient afterwards."""
    kind = SCHEDULES[job.schedule]
    single = issubclass(kind, pipelining.schedules.PipelineScheduleSingle)
    return kind(stages[0] if single else stages,
                n_microbatches=job.microbatches,
                loss_fn=lambda x, y: mean_loss(x, y) / job.microbatches,
                scale_grads=False)


def pipeline(job):
    between = boundaries(job)
    stages = [make_stage(job, number, between)
              for number in stage_numbers(job)]
    del between
    schedule = make_schedule(job, stages)
    optimizer = make_optimizer(job, [stage.submod for stage in stages])
    inputs, targets = make_batch(job)
    has_first = any(stage.is_first for stage in stages)
    has_last = any(stage.is_last for stage in stages)
    arguments = (inputs,) if has_first else ()
    options = {}
    if "return_outputs" in inspect.signature(schedule.step).parameters:
        options["return_outputs"] = False  # else it concatenates the logits

    def step():
        losses = []
        schedule.step(*arguments, target=targets if has_last else None,
                      losses=losses, **options)
        optimizer.step()
        optimizer.zero_grad()
        return sum(loss.item() for loss in losses) if has_last else None

    return step


KINDS = {"one": one_device, "ddp": data_parallel, "pipeline": pipeline}


# The process


def use_one_core(job):
    """Pins this process, with Gloo's threads, to its core."""
    os.sched_setaffinity(0, [job.core])
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)


def join_group(job):
    """Rank 0 serves the store on the socket that the parent opened."""
    patience = timedelta(seconds=job.deadline)
    listening = {"master_listen_fd": job.socket} if job.rank == 0 else {}
    store = dist.TCPStore("127.0.0.1", job.port, job.devices, job.rank == 0,
                          timeout=patience, **listening)
    dist.init_process_group("gloo", store=store, rank=job.rank,
                            world_size=job.devices, timeout=patience)


def train(job, step):
    """(losses, step times in ms). No barrier between steps: a step lasts from
    the end of the step before it, so in a pipeline it is the steady period.
    Independent copies first wait for each other, so as to run together."""
    losses, times = [], []
    for number in range(job.warmup + job.steps):
        if number == job.warmup and job.kind == "one" and job.devices > 1:
            dist.barrier()
            last = time.perf_counter()
        losses.append(step())
        now = time.perf_counter()
        if number >= job.warmup:
            times.append(1000 * (now - last))
        last = now
    return losses, times


def run(job):
    use_one_core(job)
    if job.devices > 1:
        join_group(job)
    losses, times = train(job, KINDS[job.kind](job))
    if job.devices > 1:
        dist.barrier()  # nobody leaves while a neighbour still talks to it
        dist.destroy_process_group()
    return {"torch": torch.__version__, "losses": losses, "step_ms": times}


def main():
    job = json.load(sys.stdin, object_hook=lambda d: SimpleNamespace(**d))
    try:
        print(json.dumps(run(job)))
    except Exception as error:  # any: the parent reports it in one line
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}),
              flush=True)
        raise


if __name__ == "__main__":
    main()
