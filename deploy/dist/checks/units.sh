#!/usr/bin/env bash
# Starts the units of the packages under systemd as PID 1 in a container, following the steps of deploy/README.md. Then upgrades them
# under load to the release in the folder NEXT, whose executor migrates the database once more, and back.
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need systemd-nspawn nsenter unshare
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
printf '#!/bin/sh\necho "got $(cat)"\n' >"$root/usr/local/lib/hookstart/orders"
chmod +x "$root/usr/local/lib/hookstart/orders"

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
  hookstart account put shop --plan pro > /dev/null
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

# Each unit is started again after it was killed more often than systemd's default allows.
for unit in hookstart-nats hookstart-executor hookstart-ingress hookstart-run@orders; do
	for ((i = 0; i < 6; i++)); do
		inside systemctl kill --signal=KILL "$unit"
		another() { [[ $(inside systemctl show -P ActiveState "$unit") == active ]] && inside systemctl show -P NRestarts "$unit" | grep -qv "^$i\$"; }
		await another
	done
done
await ready 9090
await ready 9091
webhook old two
echo "each unit came back from six kills in a row"

# Finds out where a service can write, by running a shell instead of the service.
for unit in hookstart-executor hookstart-nats hookstart-ingress; do
	state=/var/lib/$unit
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
	want="$state "
	[[ $unit != hookstart-ingress ]] || want=
	[[ $could == "$want" ]] || fail "$unit could write to: $could"
	inside rm -r "/run/systemd/system/$unit.service.d"
	inside systemctl daemon-reload
	inside systemctl restart "$unit"
	echo "$unit could write to its own folder only: ${could:-it has none}"
done
await ready 9090
await ready 9091

# hookstart-local runs everything in one process.
inside systemctl stop hookstart-nats hookstart-executor hookstart-ingress
inside systemctl start hookstart-local
await ready 9090
[[ -n $(inside cat /var/lib/hookstart/admin-token) ]] || fail "hookstart-local keeps no token"
inside systemctl stop hookstart-local
echo "hookstart-local: $(inside systemctl show -P Result hookstart-local)"

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
more
install_debs "$NEXT"
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
recorded() {
	inside sh -c 'export $(grep ^HOOKSTART_ADMIN_TOKEN /etc/hookstart/executor.env) && hookstart execution list --workflow orders --status succeeded --all -o json' |
		grep -o '"deliveryId": *"load-[0-9]*"' | grep -o 'load-[0-9]*' | sort
}
sort "$root/root/sent" >"$WORK/sent"
all() { cmp <(recorded) "$WORK/sent"; }
await all
echo "upgraded again: $(wc -l <"$WORK/sent") deliveries, each has one execution that succeeded; answers: $(sort "$root/root/answers" | uniq -c | awk '{ printf "%s %s × %s", (NR > 1 ? "," : ""), $1, $2 }'), where 000 is no connection"
