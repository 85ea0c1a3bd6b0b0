#!/bin/sh
# Makes what no program of hookstart can make for itself: the copy of the registry, and the
# consumer of each group of runners. It waits for the executor's streams, can be repeated,
# and changes nothing that exists. It needs the nats program (natsio/nats-box has it), and
# NATS_URL, NATS_NKEY (the admin's seed file) and NATS_CA in the environment.
#
#   HOOKSTART_REPLICAS  replicas of the copy: 1, or 3 on a cluster
#   HOOKSTART_RUNNERS   the groups, as queue/group; "default/main" when unset
set -eu
cd "$(dirname "$0")"

# ask SUBJECT REQUEST: fails when the answer is an error.
ask() {
  answer=$(nats request --raw --timeout 5s "$1" "$2") || return 1
  case $answer in
    *'"error"'*) echo "$1: $answer" >&2; return 1 ;;
    *'"type"'*) ;;
    *) echo "$1: no answer" >&2; return 1 ;;
  esac
}

tries=0
until ask '$JS.API.STREAM.INFO.EXECUTIONS' '' && ask '$JS.API.STREAM.INFO.KV_registry' ''; do
  tries=$((tries + 1))
  if [ "$tries" -ge 60 ]; then
    echo 'there are no streams after two minutes; start an executor, it makes them' >&2
    exit 1
  fi
  sleep 2
done

ask FEED.API.STREAM.CREATE.KV_registry \
  "$(sed "s/\"num_replicas\": 1/\"num_replicas\": ${HOOKSTART_REPLICAS:-1}/" feed.json)"
echo 'the copy of the registry is there'

for runner in ${HOOKSTART_RUNNERS-default/main}; do
  queue=${runner%/*} group=${runner#*/}
  ask "\$JS.API.CONSUMER.CREATE.EXECUTIONS.runner-$queue-$group.executions.start.$queue.>" \
    "$(sed "s/runner-default-main/runner-$queue-$group/; s/executions.start.default/executions.start.$queue/; s/the group main of the queue default/the group $group of the queue $queue/" runner.json)"
  echo "the consumer of $runner is there"
done
