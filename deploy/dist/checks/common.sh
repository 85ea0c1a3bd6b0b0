# Functions for all checks. DIST is the folder with the output of make dist, WORK a folder that is kept between checks.
set -euo pipefail
exec </dev/null
number=$(basename "$DIST"/hookstart_*_linux_amd64.tar.gz | sed 's/^hookstart_//; s/_linux_amd64.tar.gz$//')

# skip ends the check with status 77, because this machine lacks something that the check needs: skip REASON
skip() {
	echo "$*" >&2
	exit 77
}

# skip_part reports that a part of the check was skipped; the others go on: skip_part PART REASON
skip_part() { echo "SKIPPED $1: ${*:2}"; }

fail() {
	echo "FAILED: $*" >&2
	exit 1
}

# need skips the check unless all programs are installed: need PROGRAM...
need() {
	local program
	for program; do
		command -v "$program" >/dev/null || skip "there is no $program: apt-get install mmdebstrap lintian rpm podman buildah runc podman-compose systemd-container jq iptables catatonit iproute2 procps"
	done
}

# as_root skips the check unless the user is root.
as_root() { ((EUID == 0)) || skip "only root can do this"; }

# namespaces skips the check unless this machine lets root mount file systems and make networks.
namespaces() {
	need unshare ip
	as_root
	unshare --net --pid --fork --mount-proc ip link set lo up 2>/dev/null || skip "this machine has no namespaces for root: it is a container without privileges"
}

# debian_root unpacks a Debian without Go, with systemd and curl, into a folder. The archive is made once: debian_root FOLDER
debian_root() {
	need mmdebstrap
	as_root
	if [[ ! -e $WORK/debian.tar ]]; then
		mmdebstrap --quiet --format=tar --variant=minbase --include=systemd,systemd-sysv,dbus,curl,openssl,ca-certificates bookworm "$WORK/debian.tar.new" >&2 ||
			skip "mmdebstrap cannot make a Debian root: it needs a mirror"
		mv "$WORK/debian.tar.new" "$WORK/debian.tar"
	fi
	mkdir -p "$1"
	tar -C "$1" -xf "$WORK/debian.tar"
	printf '127.0.0.1 localhost\n::1 localhost\n' >"$1/etc/hosts" # an installer of Debian writes it
}

# await repeats a command until it succeeds, for a minute at most: await COMMAND...
await() {
	local i
	for ((i = 0; i < 300; i++)); do
		if "$@" >/dev/null 2>&1; then return; fi
		sleep 0.2
	done
	fail "in a minute it did not come to: $*"
}
