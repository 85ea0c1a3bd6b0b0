#!/usr/bin/env bash
# Starts deploy/compose of the archive, which names the shipped images. The images of NATS and PostgreSQL are made from programs of this machine, under the
# names in compose.yaml; so is the image of Prometheus if PROMETHEUS is the path of a program of version 3. Debian 12 has version 2,
# which cannot read the configuration, and no Grafana. KUSTOMIZE is the path of kustomize.
# shellcheck source=podman.sh
. "$(dirname "$0")/podman.sh"
need podman-compose curl unshare jq
works
# Containers find each other by their names.
[[ -x /usr/lib/cni/dnsname || -x /usr/lib/podman/aardvark-dns ]] ||
	skip "podman gives containers no names: apt-get install golang-github-containernetworking-plugin-dnsname dnsmasq-base"
load ingress executor
deploy=$(cd "$(dirname "$0")/../.." && pwd)
run=$WORK/compose
rm -rf "$run"
mkdir -p "$run"
tar -C "$run" -xzf "$DIST/hookstart_${number}_linux_amd64.tar.gz"
mv "$run/hookstart_${number}_linux_amd64/deploy"/{nats,compose,prometheus,grafana} "$run/"

mkdir -p "$run/nats-image/data" "$run/nats-image/tmp"
install "$SERVERS/nats-server" "$run/nats-image/nats-server"
import docker.io/library/nats:2.15.2 "$run/nats-image" 'ENTRYPOINT ["/nats-server"]' 'VOLUME /data'
rm -rf "$run/nats-image"
if ! podman image exists docker.io/library/postgres:18; then
	debian_root "$run/postgres-image"
	chroot "$run/postgres-image" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive sh -c '
		apt-get update -q && apt-get install -qy --no-install-recommends -o Dpkg::Options::=--force-unsafe-io postgresql' >"$WORK/compose.log" 2>&1 || {
		tail -3 "$WORK/compose.log" >&2
		skip "PostgreSQL cannot be installed: apt-get needs a mirror"
	}
	cat >"$run/postgres-image/start.sh" <<'END'
#!/bin/sh
set -e
bin=$(echo /usr/lib/postgresql/*/bin)
data=/var/lib/postgresql/data
mkdir -p "$data" /run/postgresql
chown -R postgres "$data" /run/postgresql
if [ ! -e "$data/PG_VERSION" ]; then
  printf %s "$POSTGRES_PASSWORD" > /tmp/password && chmod 644 /tmp/password
  runuser -u postgres -- "$bin/initdb" -D "$data" -U "$POSTGRES_USER" --pwfile=/tmp/password -A scram-sha-256 > /dev/null
  echo 'host all all all scram-sha-256' >> "$data/pg_hba.conf"
  runuser -u postgres -- "$bin/pg_ctl" -D "$data" -o '-c listen_addresses=' -w start > /dev/null
  PGPASSWORD=$POSTGRES_PASSWORD psql -U "$POSTGRES_USER" -d postgres -c "CREATE DATABASE $POSTGRES_DB" > /dev/null
  runuser -u postgres -- "$bin/pg_ctl" -D "$data" -w stop > /dev/null
fi
exec runuser -u postgres -- "$bin/postgres" -D "$data" -c 'listen_addresses=*'
END
	chmod +x "$run/postgres-image/start.sh"
	import docker.io/library/postgres:18 "$run/postgres-image" 'ENTRYPOINT ["/start.sh"]' 'VOLUME /var/lib/postgresql'
	rm -rf "$run/postgres-image"
fi

# Without a public URL, prepare.sh writes the one of this machine.
mkdir "$run/unset"
cp -r "$run/nats" "$run/compose" "$run/unset/"
env -u HOOKSTART_PUBLIC_URL NK="$SERVERS/nk" "$run/unset/compose/prepare.sh"
address=$(hostname -I 2>/dev/null | cut -d " " -f 1 || true)
grep -qxF "HOOKSTART_PUBLIC_URL=http://${address:-localhost}:8080" "$run/unset/compose/.env" || fail "prepare.sh writes: $(grep PUBLIC_URL "$run/unset/compose/.env")"
rm -r "$run/unset"
HOOKSTART_PUBLIC_URL=http://ingress-0:8080 NK=$SERVERS/nk "$run/compose/prepare.sh"
monitoring=()
if [[ -x ${PROMETHEUS-} ]]; then
	monitoring=(prometheus)
	mkdir -p "$run/prometheus-image"/{usr/bin,prometheus,tmp}
	install "$PROMETHEUS" "$run/prometheus-image/usr/bin/prometheus"
	import "$(sed -n 's/^ *image: \(prom.*\)/docker.io\/\1/p' "$deploy/compose/compose.yaml")" "$run/prometheus-image" \
		'ENTRYPOINT ["/usr/bin/prometheus", "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]' 'VOLUME /prometheus'
fi

# Podman maps no users when it runs as root, and these files belong to root.
chmod 755 "$run/compose/secrets"
compose() { (cd "$run/compose" && podman-compose -p shipped -f compose.yaml "$@"); }
stop() {
	podman rm -fa >/dev/null 2>&1 || true
	podman volume rm -fa >/dev/null 2>&1 || true
	podman network rm -f shipped_default >/dev/null 2>&1 || true
	rm -rf "$run"
}
trap stop EXIT
compose up -d --no-build postgres nats-0 nats-1 nats-2 executor-0 executor-1 ingress-0 ingress-1 "${monitoring[@]}" >"$WORK/compose.log" 2>&1 || {
	tail -5 "$WORK/compose.log" >&2
	fail "podman-compose up"
}
name() { podman ps -a --format '{{.Names}}' | grep -E "^shipped[-_]$1[-_]1$"; }
at() { nsenter --target "$(podman inspect -f '{{.State.Pid}}' "$(name "$1")")" --net "${@:2}"; }
ready() { at "$1" curl -fsS "http://127.0.0.1:$2/readyz"; }
for service in executor-0 executor-1; do await ready "$service" 9091; done
for service in ingress-0 ingress-1; do await ready "$service" 9090; done
echo "ready: 2 ingresses, 2 executors, 3 NATS servers, PostgreSQL"

# tool runs a command of hookstart as the service of that name. podman-compose prints the exit code, and ends with 0 itself.
tool() {
	local out
	out=$(compose "${files[@]}" run --rm -T --no-deps "${options[@]}" hookstart "$@" 2>&1 | tr -d '\r')
	grep -qx 'exit code: 0' <<<"$out" || {
		echo "$out" >&2
		return 1
	}
	echo "$out"
}
files=()
options=()
tool account put shop --plan pro >/dev/null
tool workflow put orders --account shop --queue default >/dev/null
tool workflow activate orders >/dev/null
url=$(tool trigger show orders --show-token | grep -o 'http[^ ]*token=[^ ]*' | head -1)
path=/${url#http://*/}
at ingress-0 curl -fsS -X POST -H 'X-Webhook-Delivery-Id: 1' -d '{}' "http://127.0.0.1:8080$path"
echo
at ingress-1 curl -fsS -X POST -H 'X-Webhook-Delivery-Id: 1' -d '{}' "http://127.0.0.1:8080$path" | grep -q deduplicated || fail "the other ingress does not know the delivery"

# The runner of the tool container posts to a URL: that of a workflow whose executions no runner takes.
tool workflow put sink --account shop --queue nowhere >/dev/null
tool workflow activate sink >/dev/null
sink=http://ingress-1:8080/$(tool trigger show sink --show-token | grep -o 'webhooks/[^ ]*token=[^ ]*' | head -1)
compose run -d -T --no-deps --name shipped-runner hookstart run --group main --http "$sink" >/dev/null 2>&1
ended() { tool execution list --workflow "$1" -o json | grep -qE "\"status\": *\"$2\""; }
await ended orders succeeded
await ended sink queued
echo "a webhook came to the end of a runner, which posted it to another workflow"

# The backup of deploy/README.md. podman-compose does not know --volume, which is a file of compose here.
grep -qF 'run --rm --user "$(id -u)" -v "$PWD:/backup" -v "$PWD/deploy/compose/secrets/admin.nk:/admin.nk:ro" -e HOOKSTART_NATS_CREDS=/admin.nk hookstart admin backup /backup/hookstart.backup' \
	"$deploy/README.md" || fail "README.md makes a backup in another way"
mkdir "$run/backup"
cat >"$run/compose/volumes.yaml" <<END
services:
  hookstart:
    volumes: ["$run/backup:/backup", "./secrets/admin.nk:/admin.nk:ro"]
END
files=(-f volumes.yaml)
options=(--user "$(id -u)" -e HOOKSTART_NATS_CREDS=/admin.nk)
tool admin backup /backup/hookstart.backup >/dev/null
tool admin restore --check /backup/hookstart.backup >/dev/null
files=()
options=()
[[ -s $run/backup/hookstart.backup ]] || fail "there is no backup"
echo "a backup was made: $(stat -c %s "$run/backup/hookstart.backup") bytes, and checked"

for service in ingress-0 executor-0; do
	container=$(name "$service")
	pid=$(podman inspect -f '{{.State.Pid}}' "$container")
	[[ $(awk '/^Uid/ { print $2 }' "/proc/$pid/status") == 65532 ]] || fail "$service runs as another user"
	[[ $(podman inspect -f '{{.HostConfig.ReadonlyRootfs}}' "$container") == true ]] || fail "$service may write"
	podman stop -t 60 "$container" >/dev/null
	code=$(podman inspect -f '{{.State.ExitCode}}' "$container")
	[[ $code == 0 ]] || fail "SIGTERM ends $service with $code"
	podman start "$container" >/dev/null
done
await ready ingress-0 9090
await ready executor-0 9091
echo "read-only, user 65532, SIGTERM ends them with 0, and they come back"
for service in ingress-1 executor-1 nats-2 postgres; do
	pid=$(podman inspect -f '{{.State.Pid}}' "$(name "$service")")
	kill -KILL "$pid"
	another() { podman inspect -f '{{.State.Pid}}' "$(name "$service")" | grep -vqE "^(0|$pid)\$"; }
	await another
done
await ready ingress-1 9090
await ready executor-0 9091
await ready executor-1 9091
delivered() { tool execution list --workflow orders --delivery-id "$1" -o json | grep -qE '"status": *"succeeded"'; }
at ingress-1 curl -fsS -X POST -H 'X-Webhook-Delivery-Id: after-kills' -d '{}' "http://127.0.0.1:8080$path" >/dev/null
await delivered after-kills
echo "killed containers come back: an ingress, an executor, a NATS server and PostgreSQL; the next webhook comes to the end of the runner"
if [[ ${#monitoring[@]} -gt 0 ]]; then
	rules() { at prometheus curl -fsS http://127.0.0.1:9090/api/v1/rules | grep -q WebhooksRefused; }
	await rules
	scraped() { [[ $(at prometheus curl -fsS http://127.0.0.1:9090/api/v1/targets | grep -o '"health":"up"' | wc -l) -ge 4 ]]; }
	await scraped
	echo "Prometheus has read its rules and scrapes"
else
	skip_part Prometheus "PROMETHEUS names no program of version 3"
fi

# Starts the Deployments of deploy/kubernetes, with the servers and the database that run here. This podman cannot mount Secrets, so
# they are ConfigMaps here. It does not support StatefulSets, autoscalers, disruption budgets, network policies and preStop hooks.
[[ -n ${KUSTOMIZE-} ]] || {
	skip_part kubernetes "KUSTOMIZE names no program"
	exit 0
}
cp -r "$deploy/kubernetes" "$run/"
mkdir -p "$run/kubernetes/secrets"
cp "$run"/compose/secrets/{ingress.nk,executor.nk,ca.crt,secrets.key} "$run/kubernetes/secrets/"
password=$(sed -n 's/^POSTGRES_PASSWORD=//p' "$run/compose/.env")
cat >"$run/kubernetes/secrets/executor.env" <<END
$(grep HOOKSTART_ADMIN_TOKEN "$run/compose/.env")
HOOKSTART_DATABASE_URL=postgres://hookstart:$password@postgres/hookstart?sslmode=disable
END
sed -i '/^secretGenerator:/d; /\.\.\/nats$/d; s/nats-\([012]\)\.nats:/nats-\1:/g' "$run/kubernetes/kustomization.yaml"
sed -i 's/secret: {secretName: \([a-z]*\), defaultMode: 0440}/configMap: {name: \1}/; s/secretRef:/configMapRef:/; s/replicas: 2/replicas: 1/' \
	"$run/kubernetes/ingress.yaml" "$run/kubernetes/executor.yaml"
"$KUSTOMIZE" build "$run/kubernetes" | awk 'BEGIN { RS = "\n---\n" } /kind: (Deployment|ConfigMap)\n/ { printf "---\n%s\n", $0 }' >"$run/play.yaml"
# Podman publishes the ports of a pod, which the services of compose have.
for service in ingress-0 ingress-1 executor-0 executor-1; do podman stop -t 60 "$(name "$service")" >/dev/null; done
podman play kube --network shipped_default "$run/play.yaml" >"$WORK/kube.log" 2>&1 || {
	tail -5 "$WORK/kube.log" >&2
	fail "podman play kube"
}
pod() { podman ps -a --format '{{.Names}}' | grep -E "^$1-pod(-0)?-$1$"; }
for part in executor:9091 ingress:9090; do
	container=$(pod "${part%:*}")
	inside() { nsenter --target "$(podman inspect -f '{{.State.Pid}}' "$container")" --net curl -fsS "$@"; }
	await inside "http://127.0.0.1:${part#*:}/readyz"
	[[ $(podman inspect -f '{{.HostConfig.ReadonlyRootfs}} {{.Config.User}}' "$container") == "true 65532"* ]] || fail "$container: $(podman inspect -f '{{.HostConfig.ReadonlyRootfs}} {{.Config.User}}' "$container")"
done
# A webhook goes through the pods. The last container in the loop was the ingress. Another runner takes it, since the ingress to which
# the first one posts is stopped.
podman rm -f shipped-runner >/dev/null
compose run -d -T --no-deps --name shipped-runner hookstart run --group main -- /hookstart --version >/dev/null 2>&1
inside -X POST -H 'X-Webhook-Delivery-Id: pods' -d '{}' "http://127.0.0.1:8080$path" >/dev/null
container=$(pod executor)
token=$(sed -n 's/^HOOKSTART_ADMIN_TOKEN=//p' "$run/compose/.env")
ran() { inside -H "Authorization: Bearer $token" "http://127.0.0.1:8081/api/v1/executions?deliveryId=pods" | grep -qE '"status": *"succeeded"'; }
await ran
for part in executor ingress; do
	container=$(pod "$part")
	podman stop -t 60 "$container" >/dev/null
	[[ $(podman inspect -f '{{.State.ExitCode}}' "$container") == 0 ]] || fail "SIGTERM ends $container with $(podman inspect -f '{{.State.ExitCode}}' "$container")"
done
echo "the pods of deploy/kubernetes are ready under podman play kube, a webhook goes through them, and SIGTERM ends them with 0"
