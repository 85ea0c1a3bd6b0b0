#!/usr/bin/env bash
# Runs the images of the command line and of hookstart-local with a read-only root: the shipped ones, or those with the tag TAG.
# compose.sh runs the others.
# shellcheck source=podman.sh
. "$(dirname "$0")/podman.sh"
works
tag=${TAG:-latest}
[[ $tag != latest ]] || load hookstart-local
trap 'podman rm -f shipped-local >/dev/null 2>&1 || true; podman volume rm -f shipped-data >/dev/null 2>&1 || true' EXIT
podman run --rm "${confined[@]}" "docker.io/hookstart/hookstart:$tag" --version
said=$(podman run --rm "${confined[@]}" "docker.io/hookstart/hookstart:$tag" run -- sh -c true 2>&1 || true)
[[ $said == *"there is no program sh on the PATH"*"--http"* ]] || fail "a program that the image does not have: $said"

start() {
	podman run -d --name shipped-local "${confined[@]}" --volume shipped-data:/data "docker.io/hookstart/hookstart-local:$tag" --log-level=warn >/dev/null
	await sh -c "podman logs shipped-local 2>&1 | grep -q 'hookstart is ready'"
}
logs() { podman logs shipped-local 2>&1; }
start
pid=$(podman inspect -f '{{.State.Pid}}' shipped-local)
[[ $(awk '/^Uid/ { print $2 }' "/proc/$pid/status") == 65532 ]] || fail "it runs as $(awk '/^Uid/ { print $2 }' "/proc/$pid/status")"
inside() { nsenter --target "$pid" --net "$@"; }
for port in 9090; do inside curl -fsS "http://127.0.0.1:$port/readyz" >/dev/null || fail "not ready"; done
url=$(logs | grep -o "http[^' ]*/webhooks/demo?token=[^' ]*" | head -1 | sed 's/localhost/127.0.0.1/')
first=$(inside curl -fsS -X POST -H 'X-Webhook-Delivery-Id: 1' -d hello "$url")
podman kill -s KILL shipped-local >/dev/null
podman wait shipped-local >/dev/null
podman start shipped-local >/dev/null
pid=$(podman inspect -f '{{.State.Pid}}' shipped-local)
await inside curl -fsS http://127.0.0.1:9090/readyz
second=$(inside curl -fsS -X POST -H 'X-Webhook-Delivery-Id: 1' -d hello "$url")
[[ $second == *deduplicated* ]] || fail "after a kill the repeat is not recognised: $first $second"
podman stop -t 60 shipped-local >/dev/null
code=$(podman inspect -f '{{.State.ExitCode}}' shipped-local)
[[ $code == 0 ]] || fail "SIGTERM ends hookstart-local with $code"
echo "hookstart-local: read-only, user 65532, ready, remembers after SIGKILL, SIGTERM ends it with 0"
