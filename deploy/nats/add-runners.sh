#!/bin/sh
# Adds a group of runners: add-runners.sh SECRETS QUEUE GROUP
# It makes the key SECRETS/runner-QUEUE-GROUP.nk, and adds an account to runners.conf beside this script, or of the package, or to the
# file that RUNNERS names. It needs nk, as make-secrets.sh does. README.md says what comes after it.
set -eu
if [ $# -ne 3 ]; then
  echo 'usage: add-runners.sh SECRETS QUEUE GROUP' >&2
  exit 2
fi
secrets=$1 queue=$2 group=$3
# A package has the configuration elsewhere.
conf=$(dirname "$0")
[ -e "$conf/runner.conf" ] || conf=/etc/hookstart/nats
runners=${RUNNERS:-$conf/runners.conf}
program=${NK-}
for shipped in "$(cd "$(dirname "$0")" && pwd)/../../bin/nk" /usr/libexec/hookstart/nk; do
  [ "$program" ] || [ ! -x "$shipped" ] || program=$shipped
done
run_nk() {
  if [ "$program" ]; then "$program" "$@"; else go run github.com/nats-io/nkeys/nk@v0.4.16 "$@"; fi
}
for name in "$queue" "$group"; do
  case $name in
    '' | *[!A-Za-z0-9_-]*) valid= ;;
    *) valid=yes ;;
  esac
  if [ -z "$valid" ] || [ ${#name} -gt 64 ]; then
    echo "\"$name\" is not a name of 1 to 64 letters, digits, _ and -" >&2
    exit 2
  fi
done
consumer=runner-$queue-$group
key=$secrets/$consumer.nk
if [ -e "$key" ] || grep -q "INFO.EXECUTIONS.$consumer\"" "$runners" "$conf/runner.conf"; then
  echo "the group $queue/$group is there already" >&2
  exit 1
fi
# The key gets its name, and the account is added, only once both are complete.
added=$(mktemp)
trap 'exit 1' HUP INT TERM
trap 'rm -f "$added" "$key.new"' EXIT
(umask 077 && run_nk -gen user > "$key.new")
# A literal key: a reload of the server reads no new variables.
public=$(run_nk -inkey "$key.new" -pubout)
cat > "$added" <<END

# The group "$group" of the queue "$queue".
RUNNER-$queue-$group {
  users: [
    {
      nkey: $public
      permissions { subscribe { allow: ["_INBOX.>"] } }
    }
  ]
  imports: [
    { service: { account: HOOKSTART, subject: "\$JS.API.INFO" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.STREAM.NAMES" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.DIRECT.GET.KV_registry.\$KV.registry.queue.$queue" } }
    { service: { account: HOOKSTART, subject: "executions.progress.$queue.*.*" } }
    { service: { account: HOOKSTART, subject: "executions.reports.$queue.*.*" } }
    { service: { account: HOOKSTART, subject: "hookstart.runners.$queue.$group.*" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.CONSUMER.INFO.EXECUTIONS.$consumer" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.CONSUMER.INFO.QUEUE_$queue.$consumer" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.CONSUMER.MSG.NEXT.EXECUTIONS.$consumer" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.CONSUMER.MSG.NEXT.QUEUE_$queue.$consumer" } }
    { service: { account: HOOKSTART, subject: "\$JS.ACK.EXECUTIONS.$consumer.>" } }
    { service: { account: HOOKSTART, subject: "\$JS.ACK.QUEUE_$queue.$consumer.>" } }
    { service: { account: HOOKSTART, subject: "\$JS.ACK._.qKA9brpj.EXECUTIONS.$consumer.>" } }
    { service: { account: HOOKSTART, subject: "\$JS.ACK._.qKA9brpj.QUEUE_$queue.$consumer.>" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.STREAM.INFO.KV_cancellations" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.STREAM.MSG.GET.KV_cancellations" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.DIRECT.GET.KV_cancellations.>" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.DIRECT.GET.PROGRESS.executions.progress.$queue.*.*" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.DIRECT.GET.PROGRESS_$queue.executions.reports.$queue.*.*" } }
    # The lanes of executions with an order key: one consumer each.
END
lane=0
while [ $lane -lt 16 ]; do
  cat >> "$added" <<END
    { service: { account: HOOKSTART, subject: "\$JS.API.CONSUMER.INFO.EXECUTIONS.$consumer-$lane" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.CONSUMER.INFO.QUEUE_$queue.$consumer-$lane" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.CONSUMER.MSG.NEXT.EXECUTIONS.$consumer-$lane" } }
    { service: { account: HOOKSTART, subject: "\$JS.API.CONSUMER.MSG.NEXT.QUEUE_$queue.$consumer-$lane" } }
    { service: { account: HOOKSTART, subject: "\$JS.ACK.EXECUTIONS.$consumer-$lane.>" } }
    { service: { account: HOOKSTART, subject: "\$JS.ACK.QUEUE_$queue.$consumer-$lane.>" } }
    { service: { account: HOOKSTART, subject: "\$JS.ACK._.qKA9brpj.EXECUTIONS.$consumer-$lane.>" } }
    { service: { account: HOOKSTART, subject: "\$JS.ACK._.qKA9brpj.QUEUE_$queue.$consumer-$lane.>" } }
END
  lane=$((lane + 1))
done
cat >> "$added" <<END
  ]
}
END
cat "$added" >> "$runners"
mv "$key.new" "$key"
cat <<END
Made $key and added an account to $runners. Now:
  1. copy runners.conf to every NATS server, and reload each: nats-server --signal reload
  2. reload each once more: NATS connects the account's imports with the second reload
  3. add $queue/$group to --runner-groups of the executors, and restart them one by one
  4. give $key to the runners
END
