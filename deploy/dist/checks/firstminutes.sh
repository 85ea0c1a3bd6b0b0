#!/usr/bin/env bash
# Follows the first minutes of the README in a Debian without Go: after the archive is unpacked, or the packages are installed, three
# commands bring a webhook to the end of a script.
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need dpkg-deb
namespaces
root=$WORK/firstminutes
debian_root "$root"
trap 'rm -rf "$root"' EXIT
cat >"$root/first.sh" <<'END'
set -e
cd /root
rm -rf got .hookstart
printf '#!/bin/sh\ncat > /root/got\necho done\n' > script.sh && chmod +x script.sh
hookstart-local > local.log 2>&1 &
local=$!
until grep -q 'is ready' local.log; do sleep 0.1; done
hookstart run --queue demo -- ./script.sh > run.log 2>&1 &
runner=$!
sh -ec "$(grep -m1 -o 'curl .*' local.log)"
echo
until [ -s got ]; do sleep 0.1; done
echo "the script got: $(cat got)"
kill $local $runner
wait
END
# first runs it in a separate network, so that it disturbs nothing and reaches nothing: first PATH
first() {
	timeout 120 unshare --net --pid --fork --mount-proc="$root/proc" sh -c 'ip link set lo up && exec chroot "$0" env -i HOME=/root PATH="$1" sh /first.sh' "$root" "$1" || {
		tail "$root"/root/*.log >&2
		fail "the first minutes"
	}
}
path=/usr/sbin:/usr/bin:/sbin:/bin
! chroot "$root" sh -c 'command -v go' || fail "there is a Go"
archive=hookstart_${number}_linux_amd64
tar -C "$root/root" -xzf "$DIST/$archive.tar.gz"
first "/root/$archive/bin:$path"
rm -r "$root/root/$archive"
echo "from the archive: a webhook came to the end of a script"
cp "$DIST/hookstart_${number}_linux_amd64.deb" "$DIST/hookstart-local_${number}_linux_amd64.deb" "$root/"
chroot "$root" env -i PATH="$path" DEBIAN_FRONTEND=noninteractive \
	apt-get install -qy "./hookstart_${number}_linux_amd64.deb" "./hookstart-local_${number}_linux_amd64.deb" >/dev/null
first "$path"
echo "from the packages: a webhook came to the end of a script"
