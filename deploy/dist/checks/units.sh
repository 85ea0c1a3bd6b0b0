#!/usr/bin/env bash
# Starts the units of the packages under systemd as PID 1 in a container, following the steps of deploy/README.md. Then upgrades them
# under load to the release in the folder NEXT, whose executor migrates the database once more, and back.
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need systemd-nspawn nsenter unshare jq
root=$WORK/units
debian_root "$root"
machine=
stop() {
	if [[ -n $machine ]]; then
		kill -TERM "$machine" 2>/dev/null || true
		sleep 1
		pkill -KILL -P "$machine" 2>/dev/null || true
		kill -KILL "$machine" 2>/dev/null || true
		wait "$machine" 2>/dev/null || true
	fi
	rm -rf "$root"
}
trap stop EXIT

cp "$DIST"/*_"${number}"_linux_amd64.deb "$root/root/"
chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive sh -c 'apt-get install -qy /root/*.deb' >/dev/null
install "$SERVERS/nats-server" "$root/usr/bin/nats-server"
mkdir -p "$root/usr/local/lib/hookstart"
# The program writes a line for each run; a drop-in gives it a folder for that.
printf '#!/bin/sh\necho "$HOOKSTART_DELIVERY_ID" >>"$STATE_DIRECTORY/runs"\necho "got $(cat)"\n' >"$root/usr/local/lib/hookstart/orders"
chmod +x "$root/usr/local/lib/hookstart/orders"
mkdir -p "$root/etc/systemd/system/hookstart-run@orders.service.d"
printf '[Service]\nStateDirectory=orders\n' >"$root/etc/systemd/system/hookstart-run@orders.service.d/folder.conf"

# inside runs a command in the container.
inside() {
	local leader
	leader=$(pgrep -P "$machine" | tail -1)
	nsenter --target "$leader" --mount --uts --ipc --net --pid --cgroup --root --wdns=/ -- env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
booted() { inside systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded'; }
# boot starts the container, and waits until it has booted.
boot() {
	local i
	systemd-nspawn --quiet --directory="$root" --boot --private-network --register=no --keep-unit --link-journal=no --console=pipe >>"$WORK/units.log" 2>&1 &
	machine=$!
	for ((i = 0; i < 300; i++)); do
		if booted; then return; fi
		kill -0 "$machine" 2>/dev/null || break
		sleep 0.2
	done
	return 1
}
: >"$WORK/units.log"
boot || {
	tail -5 "$WORK/units.log" >&2
	skip "systemd does not boot in a container of this machine"
}
echo "PID 1: $(inside systemctl --version | head -1)"

cat >"$root/root/setup.sh" <<'END'
set -e
cd /root
/usr/share/hookstart/nats/make-secrets.sh secrets
(cd secrets && install -m 600 ingress.nk executor.nk secrets.key tls.key tls.crt ca.crt /etc/hookstart/)
cat secrets/nats.env >> /etc/hookstart/nats.env
echo HOOKSTART_ADMIN_TOKEN=$(openssl rand -hex 24) >> /etc/hookstart/executor.env
systemctl enable --now hookstart-nats hookstart-executor hookstart-ingress
END
inside sh /root/setup.sh 2>&1 | grep -v 'Created symlink' || true
ready() { inside curl -fsS "http://127.0.0.1:$1/readyz"; }
await ready 9090
await ready 9091
echo "active: $(inside systemctl is-active hookstart-nats hookstart-executor hookstart-ingress | tr '\n' ' ')"

# Adds a group of runners. Its account takes effect when the servers are reloaded twice.
cat >"$root/root/runner.sh" <<'END'
set -e
cd /root
/usr/share/hookstart/nats/add-runners.sh secrets orders run > /dev/null
install -m 600 secrets/runner-orders-run.nk /etc/hookstart/
systemctl reload hookstart-nats
sleep 1
systemctl reload hookstart-nats
echo HOOKSTART_RUNNER_GROUPS=default/main,orders/run >> /etc/hookstart/executor.env
systemctl restart hookstart-executor
END
before=$(inside systemctl show -P MainPID hookstart-nats)
inside sh /root/runner.sh || fail "a group of runners cannot be added: $(inside journalctl -n 30 --no-pager)"
[[ $(inside systemctl show -P MainPID hookstart-nats) == "$before" ]] || fail "a reload restarts NATS"
await ready 9091
inside systemctl enable --now hookstart-run@orders 2>/dev/null

cat >"$root/root/webhook.sh" <<'END'
set -e
export $(grep ^HOOKSTART_ADMIN_TOKEN /etc/hookstart/executor.env)
if [ "$1" = new ]; then
  hookstart account put shop --plan ultra > /dev/null
  hookstart workflow put orders --account shop --queue orders > /dev/null
  hookstart workflow activate orders > /dev/null
fi
url=$(hookstart trigger show orders --show-token | grep -o 'http[^ ]*token=[^ ]*' | head -1)
curl -fsS -X POST "$url" -H "X-Webhook-Delivery-Id: $2" -d 'an order'
echo
i=0
until hookstart execution list --workflow orders --status succeeded -o json | grep -q "\"deliveryId\": *\"$2\""; do
  i=$((i + 1)); [ $i -lt 100 ] || { hookstart execution list; exit 1; }
  sleep 0.2
done
END
webhook() { inside sh /root/webhook.sh "$@" || fail "a webhook does not come to the end of its script: $(inside journalctl -n 30 --no-pager)"; }
webhook new one
echo "a webhook came to the end of hookstart-run@orders"

pid() { inside systemctl show -P MainPID "$1"; }
# kill_six_times kills the process of a unit more often than systemd's default starts it again, and waits for the next process each
# time: kill_six_times UNIT
kill_six_times() {
	local unit=$1 i was
	for ((i = 0; i < 6; i++)); do
		was=$(pid "$unit")
		inside systemctl kill --signal=KILL "$unit"
		another() { [[ $(inside systemctl show -P ActiveState "$unit") == active && $(pid "$unit") != "$was" ]]; }
		await another
	done
}
for unit in hookstart-nats hookstart-executor hookstart-ingress hookstart-run@orders; do kill_six_times "$unit"; done
await ready 9090
await ready 9091
webhook old two
echo "each unit came back from six kills in a row"

# confined finds out where a unit can write, by running a shell instead of its program: confined UNIT [ITS FOLDER]
confined() {
	local unit=$1 state=${2-} could
	mkdir -p "$root/run/systemd"
	inside mkdir -p "/run/systemd/system/$unit.service.d"
	inside tee "/run/systemd/system/$unit.service.d/shell.conf" >/dev/null <<END
[Service]
Type=oneshot
Restart=no
ExecStart=
ExecStart=/bin/sh -c 'for f in / /etc /etc/hookstart /usr/bin /var /var/lib /home /root /run $state; do if (: >\$\$f/probe) 2>/dev/null; then echo \$\$f; fi; done'
END
	inside systemctl daemon-reload
	inside systemctl restart "$unit"
	could=$(inside journalctl -u "$unit" -o cat --no-pager _COMM=sh | tr '\n' ' ')
	[[ $could == "${state:+$state }" ]] || fail "$unit could write to: $could"
	inside rm -r "/run/systemd/system/$unit.service.d"
	inside systemctl daemon-reload
	echo "$unit could write to its own folder only: ${could:-it has none}"
}
for unit in hookstart-executor hookstart-nats; do confined "$unit" "/var/lib/$unit"; done
confined hookstart-ingress
confined hookstart-run@orders /var/lib/orders
inside systemctl restart hookstart-nats hookstart-executor hookstart-ingress hookstart-run@orders
await ready 9090
await ready 9091

# hookstart-local runs everything in one process.
inside systemctl stop hookstart-nats hookstart-executor hookstart-ingress hookstart-run@orders
inside systemctl start hookstart-local
await ready 9090
[[ -n $(inside cat /var/lib/hookstart/admin-token) ]] || fail "hookstart-local keeps no token"
kill_six_times hookstart-local
await ready 9090
inside systemctl stop hookstart-local
echo "hookstart-local: came back from six kills in a row; stopped: $(inside systemctl show -P Result hookstart-local)"
confined hookstart-local /var/lib/hookstart

inside systemctl reboot >/dev/null 2>&1 || true # the answer is lost
code=0
wait "$machine" || code=$?
[[ $code == 133 ]] || fail "a reboot ends the container with $code" # with 133, systemd-nspawn asks to be started again
boot || fail "the container does not boot again"
await ready 9090
await ready 9091
webhook old two | grep deduplicated || fail "after the reboot, a repeat is not recognised"
webhook old three
echo "after a reboot, webhooks come to the end and repeats are recognised"

# deliver posts deliveries one after the other, and repeats each until it is answered with 200, as senders do.
cat >"$root/root/deliver.sh" <<'END'
export $(grep ^HOOKSTART_ADMIN_TOKEN /etc/hookstart/executor.env)
url=$(hookstart trigger show orders --show-token | grep -o 'http[^ ]*token=[^ ]*' | head -1)
n=0
until [ -e enough ]; do
  n=$((n + 1))
  until [ "$(curl -s -o /dev/null -w '%{http_code}\n' -X POST "$url" -H "X-Webhook-Delivery-Id: load-$n" -d 'an order' | tee -a answers)" = 200 ]; do
    sleep 0.05
  done
  echo "load-$n" >> sent
done
END
: >"$root/root/sent"
inside sh -c 'cd /root && exec sh deliver.sh' &
load=$!
sent() { wc -l <"$root/root/sent"; }
more() {
	local want
	want=$(($(sent) + 50))
	enough() { [[ $(sent) -ge $want ]]; }
	await enough
}
install_debs() { # install_debs FOLDER OPTION...
	local folder=$1 number
	shift
	rm -rf "$root/root/debs"
	mkdir "$root/root/debs"
	cp "$folder"/*_linux_amd64.deb "$root/root/debs/"
	inside env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get install -qy "$@" /root/debs/*.deb' sh "$@" >>"$WORK/units.log" 2>&1 ||
		fail "apt-get install: $(tail -5 "$WORK/units.log")"
}
versions() { inside sh -c 'export $(grep ^HOOKSTART_ADMIN_TOKEN /etc/hookstart/executor.env) && hookstart admin versions'; }
settings=$(inside sh -c 'cat /etc/hookstart/*.env /etc/hookstart/*.nk | sha256sum')
kept() { [[ $(inside sh -c 'cat /etc/hookstart/*.env /etc/hookstart/*.nk | sha256sum') == "$settings" ]] || fail "settings or keys changed"; }
# new fails unless the units run the programs that are installed, in other processes than those whose IDs are in was: new UNIT...
new() {
	local unit
	for unit; do
		[[ $(pid "$unit") != "${was[$unit]}" ]] || fail "$unit is the process from before the upgrade"
		inside readlink "/proc/$(pid "$unit")/exe" | grep -vq deleted || fail "$unit runs the program from before the upgrade"
	done
}
more
declare -A was
for unit in hookstart-executor hookstart-ingress hookstart-run@orders; do was[$unit]=$(pid "$unit"); done
install_debs "$NEXT"
new hookstart-executor hookstart-ingress hookstart-run@orders
await ready 9090
await ready 9091
more
kept
now=$(versions 2>/dev/null | tr -s ' \n' ' ')
[[ $now == *" v0.1.1 101 "*" v0.1.1 "* && $now != *" v$number "* ]] || fail "after the upgrade there are: $now"
echo "upgraded under load: $now"

# The executor of the version before refuses the database. Ingresses go on, and nothing that they accept is lost.
install_debs "$DIST" --allow-downgrades
refused() { inside journalctl -u hookstart-executor -o cat --no-pager | grep -o 'another version of the program has migrated the database[^"]*'; }
await refused
kept
await ready 9090
more
! ready 9091 >/dev/null 2>&1 || fail "the executor before the migration is ready"
echo "back at v$number under load, the executor says: $(refused | tail -1)"
install_debs "$NEXT"
await ready 9091
more
kept
touch "$root/root/enough"
wait "$load"
# Every execution counts, whatever its state.
recorded() {
	inside sh -c 'export $(grep ^HOOKSTART_ADMIN_TOKEN /etc/hookstart/executor.env) && hookstart execution list --workflow orders --all -o json' |
		jq -r '.. | objects | select((.deliveryId? // "") | startswith("load-")) | .deliveryId + " " + .status' | sort
}
sed 's/$/ succeeded/' "$root/root/sent" | sort >"$WORK/sent"
all() { cmp <(recorded) "$WORK/sent"; }
await all
grep '^load-' "$root/var/lib/private/orders/runs" | sort >"$WORK/runs"
cmp <(uniq "$WORK/runs") <(sort "$root/root/sent") || fail "not every delivery was run"
answers=$(sort "$root/root/answers" | uniq -c | awk '{ printf "%s %s × %s", (NR > 1 ? "," : ""), $1, $2 }')
! grep -vxE '200|503|000' "$root/root/answers" || fail "there are other answers than 200, 503 and none:$answers"
echo "upgraded again: $(wc -l <"$WORK/sent") deliveries, each has one execution that succeeded; repeated runs: $(uniq -d "$WORK/runs" | wc -l); answers:$answers, where 000 is no connection"
[[ -z $(uniq -d "$WORK/runs") ]] || fail "$(uniq -d "$WORK/runs" | wc -l) deliveries ran twice"

# hookstart-local is upgraded while it runs: it refuses to go back, and goes on when it is upgraded again.
inside systemctl stop hookstart-run@orders hookstart-ingress hookstart-executor hookstart-nats
install_debs "$DIST" --allow-downgrades
inside systemctl start hookstart-local
await ready 9090
cat >"$root/root/local.sh" <<'END'
set -e
export HOOKSTART_ADMIN_TOKEN=$(cat /var/lib/hookstart/admin-token)
if [ "$1" = new ]; then
  hookstart account put shop --plan pro > /dev/null
  hookstart workflow put local --account shop > /dev/null
  hookstart workflow activate local > /dev/null
fi
url=$(hookstart trigger show local --show-token | grep -o 'http[^ ]*token=[^ ]*' | head -1)
curl -fsS -X POST "$url" -H "X-Webhook-Delivery-Id: $2" -d 'an order'
END
send() { inside sh /root/local.sh "$@" || fail "hookstart-local accepts no webhook: $(inside journalctl -u hookstart-local -n 10 --no-pager)"; }
# goes_on sends the first delivery again, and a new one: goes_on NEW
goes_on() {
	new hookstart-local
	await ready 9090
	[[ $(send old one) == *'"deduplicated":true'* ]] || fail "hookstart-local does not recognise a repeat from before the upgrade"
	[[ $(send old "$1") != *deduplicated* ]] || fail "hookstart-local takes a new delivery for a repeat"
}
send new one >/dev/null
was[hookstart-local]=$(pid hookstart-local)
install_debs "$NEXT"
goes_on two
was[hookstart-local]=$(pid hookstart-local)
install_debs "$DIST" --allow-downgrades
refused() { inside journalctl -u hookstart-local -o cat --no-pager | grep 'another version of the program has migrated the database'; }
await refused
lines=$(refused | sort | uniq -c | awk '{ $1 = ""; print }')
[[ $(wc -l <<<"$lines") == 1 ]] || fail "hookstart-local says in more than one line why it does not start: $lines"
install_debs "$NEXT"
goes_on three
echo "hookstart-local: upgraded, refused to go back (${lines# }), upgraded again; it recognises repeats"

# A removal stops and disables the units. A purge deletes what they kept, but leaves the keys.
gone() {
	local unit
	for unit; do
		[[ $(inside systemctl is-active "$unit") == inactive ]] || fail "after the removal, $unit is $(inside systemctl is-active "$unit")"
		[[ -z $(find "$root/etc/systemd/system" -name "$unit.service") ]] || fail "after the removal, $unit is enabled"
	done
}
apt() { inside env DEBIAN_FRONTEND=noninteractive apt-get "$@" >>"$WORK/units.log" 2>&1 || fail "apt-get $*: $(tail -5 "$WORK/units.log")"; }
apt purge -qy hookstart-local
gone hookstart-local
[[ ! -e $root/var/lib/hookstart ]] || fail "purge left /var/lib/hookstart"
inside systemctl start hookstart-nats hookstart-executor hookstart-ingress hookstart-run@orders
await ready 9091
keys() { (cd "$root/etc/hookstart" && sha256sum -- *.nk *.key *.crt); }
had=$(keys)
apt remove -qy hookstart hookstart-server
gone hookstart-nats hookstart-executor hookstart-ingress hookstart-run@orders
[[ -d $root/var/lib/hookstart-executor && -d $root/var/lib/hookstart-nats && -e $root/etc/hookstart/executor.env ]] || fail "remove took data or settings"
apt purge -qy hookstart hookstart-server
for path in var/lib/hookstart-executor var/lib/hookstart-nats etc/hookstart/executor.env etc/hookstart/nats.env etc/hookstart/nats/server.conf; do
	[[ ! -e $root/$path ]] || fail "purge left /$path"
done
[[ $(keys) == "$had" ]] || fail "purge took keys"
echo "removed: the units are stopped and disabled; purged: their data and settings are gone, keys are left"
