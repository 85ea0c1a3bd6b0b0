#!/usr/bin/env bash
# Builds deploy/Dockerfile with buildah, without a network, and runs the images. The base image is made of a Debian root and of this
# machine's Go, under the name in the Dockerfile; modules come from this machine's cache.
# shellcheck source=podman.sh
. "$(dirname "$0")/podman.sh"
need buildah go git unshare
works
checkout=$(cd "$(dirname "$0")/../../.." && pwd)
run=$WORK/dockerfile
rm -rf "$run"
mkdir -p "$run/tmp"
trap 'rm -rf "$run"' EXIT
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
	unshare --net buildah bud --quiet --isolation chroot --layers --volume "$(go env GOMODCACHE)/cache/download:/modules:ro" --build-arg VERSION=v0.0.1 \
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
echo "the images of deploy/Dockerfile are built and run as those that are shipped"
