#!/usr/bin/env bash
# Several hosts on one machine: network namespaces that reach each other over
# veth pairs and a bridge, with host names and, where the system can do that,
# clocks of their own. Ranks on them train over TCP what threads of one process
# train, to the bit; a trace shows all on one clock; and a link that goes down
# gives an error that names the rank, not a hang.
#
#   hosts.sh PROGRAM HOSTS
#
# Ends with 77 where namespaces cannot be made (not root, no ip).
set -euo pipefail
program=$1
hosts=$2

if [[ $(id -u) -ne 0 ]] || ! command -v ip >/dev/null; then
  echo "needs root and iproute2"
  exit 77
fi

name="clv$$"
work=$(mktemp -d)
subnet="10.$((RANDOM % 100 + 100)).$((RANDOM % 250))"

clean_up() {
  for ((i = 0; i < hosts; ++i)); do
    ip netns pids "$name-$i" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
    ip netns del "$name-$i" 2>/dev/null || true
  done
  ip link del "$name" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT

make_hosts() {
  ip link add "$name" type bridge
  ip link set "$name" up
  for ((i = 0; i < hosts; ++i)); do
    ip netns add "$name-$i"
    ip link add "${name}v$i" type veth peer name eth0 netns "$name-$i"
    ip link set "${name}v$i" master "$name" up
    ip -n "$name-$i" address add "$subnet.$((i + 1))/24" dev eth0
    ip -n "$name-$i" link set eth0 up
    ip -n "$name-$i" link set lo up
    # mpirun waits for a lost host as long as TCP does: a quarter of an hour.
    ip netns exec "$name-$i" sysctl -qw net.ipv4.tcp_retries2=4
    echo "$subnet.$((i + 1)) slots=1" >>"$work/hostfile"
  done
}
if ! make_hosts 2>"$work/problem"; then
  echo "cannot make namespaces: $(cat "$work/problem")"
  exit 77
fi

clocks=
if unshare --time --monotonic 1 true 2>/dev/null; then
  clocks=own
fi

# Stands in for ssh: AGENT ADDRESS COMMAND…
cat >"$work/agent" <<AGENT
#!/usr/bin/env bash
address=\$1
shift
host=\$((\${address##*.} - 1))
clocks=$clocks
exec ip netns exec "$name-\$host" unshare --uts \
  \${clocks:+--time --monotonic \$((host * 1000))} bash -c \
  "hostname host\$host; \$*"
AGENT
chmod +x "$work/agent"

# Runs the program on all hosts, started from the first one.
on_hosts() {
  ip netns exec "$name-0" unshare --uts bash -c 'hostname host0; exec "$@"' - \
    mpirun --allow-run-as-root --bind-to none -n "$hosts" \
    --hostfile "$work/hostfile" --mca plm_rsh_agent "$work/agent" \
    --mca btl tcp,self --mca btl_tcp_if_include "$subnet.0/24" \
    --mca oob_tcp_if_include "$subnet.0/24" "$program" "$@"
}

cat >"$work/config.toml" <<CONFIG
[model]
family = "mlp"
width = 64
depth = $((hosts + 1))
[data]
samples = 256
test_samples = 64
[devices]
patience = 4
threads = 1
[parallel]
stages = $hosts
microbatches = 4
schedule = "1f1b"
[train]
batch = 32
epochs = 2
CONFIG

train() { # WHERE FOLDER MORE…
  "$1" train "$work/config.toml" --output.directory "$work/$2" "${@:3}"
}

echo "== $hosts hosts over TCP"
train on_hosts hosts --output.trace 1 | tee "$work/hosts.log"
for ((i = 0; i < hosts; ++i)); do
  grep -q "host$i .*$subnet.$((i + 1))" "$work/hosts.log"
done
train "$program" threads --devices.use "cpu:$hosts" >/dev/null
"$program" merge "$work/hosts" >/dev/null
"$program" merge "$work/threads" >/dev/null
cmp "$work/hosts/model.safetensors" "$work/threads/model.safetensors"
echo "== equal to the bit"
# On clocks that are not brought together a step would last a thousand seconds.
longest=$(grep -o '"ts":[0-9.]*' "$work/hosts/trace.json" | cut -d: -f2 |
  sort -g | tail -1)
awk -v last="$longest" 'BEGIN { exit !(last > 0 && last < 60e6) }'
echo "== a trace of ${longest} us${clocks:+, of hosts a thousand seconds apart}"

echo "== a link goes down"
train on_hosts cut --train.epochs 1000000 >"$work/cut.log" 2>&1 &
run=$!
for ((i = 0; i < 300; ++i)); do
  grep -q "^step " "$work/cut.log" && break
  sleep 0.1
done
grep -q "^step " "$work/cut.log"
ip link set "${name}v$((hosts - 1))" down
for ((i = 0; i < 600; ++i)); do
  kill -0 "$run" 2>/dev/null || break
  sleep 0.1
done
if kill -0 "$run" 2>/dev/null; then
  echo "still running a minute after the link went down"
  tail -5 "$work/cut.log"
  exit 1
fi
code=0
wait "$run" || code=$?
grep -v "^step " "$work/cut.log" | tail -20
[[ $code -ne 0 ]]
grep -q "cleave: .*waited .* for .* from rank" "$work/cut.log"
echo "== named, and ended with code $code"
