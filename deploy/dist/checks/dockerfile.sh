#!/usr/bin/env bash
# Builds the four images of deploy/Dockerfile with buildah, without a network, and runs them. The base image is made of a Debian root
# and of this machine's Go, under the name in the Dockerfile; modules come from this machine's cache.
# shellcheck source=podman.sh
. "$(dirname "$0")/podman.sh"
need buildah go git unshare
works
checkout=$(cd "$(dirname "$0")/../../.." && pwd)
run=$WORK/dockerfile
rm -rf "$run"
mkdir -p "$run/tmp"
stop() {
	podman rm -f shipped-runner shipped-ingress shipped-executor shipped-nats >/dev/null 2>&1 || true
	podman rmi -f "docker.io/hookstart/"{hookstart,hookstart-local,ingress,executor}:built shipped-nats >/dev/null 2>&1 || true
	rm -rf "$run"
}
trap stop EXIT
base=docker.io/library/$(sed -n 's/^FROM \(golang:.*\) AS build$/\1/p' "$checkout/deploy/Dockerfile")
if ! podman image exists "$base"; then
	debian_root "$run/golang"
	cp -a "$(go env GOROOT)" "$run/golang/usr/local/go"
	import "$base" "$run/golang" 'ENV PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin' 'ENV GOPATH=/go' 'ENV GOTOOLCHAIN=local' \
		'ENV GOPROXY=file:///modules' 'ENV GOSUMDB=off'
	rm -rf "$run/golang"
fi

# The context has tracked files only, as a clone has.
mkdir "$run/context"
git -C "$checkout" -c safe.directory="$checkout" archive HEAD | tar -C "$run/context" -xf -
# buildah keeps the folder of a cache mount here. What this machine has compiled already is not compiled again.
export TMPDIR=$run/tmp
for cache in buildah-cache buildah-cache-0; do
	mkdir -p "$TMPDIR/$cache/go"
	ln -s "$(go env GOCACHE)" "$TMPDIR/$cache/go/cache"
done
for program in hookstart hookstart-local ingress executor; do
	unshare --net buildah bud --quiet --isolation chroot --layers=false --volume "$(go env GOMODCACHE)/cache/download:/modules:ro" --build-arg VERSION=v0.0.1 \
		--file "$run/context/deploy/Dockerfile" --target "$program" --tag "docker.io/hookstart/$program:built" "$run/context" >"$WORK/dockerfile.log" 2>&1 || {
		tail -5 "$WORK/dockerfile.log" >&2
		fail "deploy/Dockerfile does not build $program"
	}
	load "$program"
	settings() { podman image inspect "docker.io/hookstart/$program:$1" | jq -cS '.[0].Config | {User, Entrypoint, ExposedPorts, Volumes, Env: (.Env // [] | map(select(startswith("PATH=") | not)) | sort)}'; }
	[[ $(settings built) == "$(settings latest)" ]] || fail "$program is built with $(settings built), and shipped with $(settings latest)"
	podman run --rm "${confined[@]}" "docker.io/hookstart/$program:built" --version | grep "^$program v0.0.1" || fail "$program --version"
done
TAG=built bash "$(dirname "$0")/images.sh"

# An ingress, an executor and a runner share the network of a NATS server.
mkdir -p "$run/nats-image/data" "$run/nats-image/tmp"
install "$SERVERS/nats-server" "$run/nats-image/nats-server"
import shipped-nats "$run/nats-image" 'ENTRYPOINT ["/nats-server"]'
podman run -d --name shipped-nats shipped-nats -a 127.0.0.1 -js -sd /data >/dev/null
export HOOKSTART_ADMIN_TOKEN HOOKSTART_NATS_URL=nats://127.0.0.1:4222 HOOKSTART_API_URL=http://127.0.0.1:8081
HOOKSTART_ADMIN_TOKEN=$(openssl rand -hex 24)
built() {
	podman run "${confined[@]}" --network container:shipped-nats --env HOOKSTART_ADMIN_TOKEN --env HOOKSTART_NATS_URL --env HOOKSTART_API_URL "${@:2}" \
		"docker.io/hookstart/$1:built" "${arguments[@]}"
}
arguments=()
built executor -d --name shipped-executor --tmpfs /data:mode=1777 --env HOOKSTART_DATABASE_URL=sqlite:/data/hookstart.db \
	--env HOOKSTART_PUBLIC_URL=http://127.0.0.1:8080 --env HOOKSTART_RUNNER_GROUPS=orders/main >/dev/null
built ingress -d --name shipped-ingress >/dev/null
at() { nsenter --target "$(podman inspect -f '{{.State.Pid}}' shipped-nats)" --net "$@"; }
await at curl -fsS http://127.0.0.1:9090/readyz
await at curl -fsS http://127.0.0.1:9091/readyz
tool() {
	local arguments=("$@")
	built hookstart --rm
}
tool account put shop --plan pro >/dev/null
for name in orders sink; do
	tool workflow put "$name" --account shop --queue "$name" >/dev/null
	tool workflow activate "$name" >/dev/null
done
url() { tool trigger show "$1" --show-token | grep -o 'http[^ ]*token=[^ ]*' | head -1; }
at curl -fsS -X POST -H 'X-Webhook-Delivery-Id: 1' -d '{}' "$(url orders)"
echo
# The runner posts to the URL of a workflow without a runner.
arguments=(run --queue orders --group main --http "$(url sink)")
built hookstart -d --name shipped-runner >/dev/null
ended() { tool execution list --workflow "$1" -o json | grep -qE "\"status\": *\"$2\""; }
await ended orders succeeded
await ended sink queued
echo "a webhook came to the end of a runner, which posted it to another workflow"
for program in ingress executor runner; do
	pid=$(podman inspect -f '{{.State.Pid}}' "shipped-$program")
	[[ $(awk '/^Uid/ { print $2 }' "/proc/$pid/status") == 65532 ]] || fail "$program runs as another user"
	podman stop -t 60 "shipped-$program" >/dev/null
	code=$(podman inspect -f '{{.State.ExitCode}}' "shipped-$program")
	[[ $code == 0 ]] || fail "SIGTERM ends $program with $code"
	echo "$program: read-only, user 65532, ready, SIGTERM ends it with 0"
done
echo "the images of deploy/Dockerfile are built and run as those that are shipped"
