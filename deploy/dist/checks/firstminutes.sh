#!/usr/bin/env bash
# Follows the first minutes of the README in a Debian without Go: its three commands, which begin with the installation of the package,
# bring a webhook to the end of a script. So do the second and the third after the archive was unpacked.
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need dpkg-deb
namespaces
root=$WORK/firstminutes
debian_root "$root"
trap 'rm -rf "$root"' EXIT
path=/usr/sbin:/usr/bin:/sbin:/bin
! chroot "$root" sh -c 'command -v go' || fail "there is a Go"
tar -C "$root/root" -xzf "$DIST/hookstart_${number}_linux_amd64.tar.gz"
cp "$root/root/hookstart_${number}_linux_amd64/README.md" "$root/README.md"
cp "$DIST/hookstart_${number}_linux_amd64.deb" "$DIST/hookstart-local_${number}_linux_amd64.deb" "$DIST/hookstart_${number}_linux_amd64.tar.gz" "$root/root/"
rm -r "$root/root/hookstart_${number}_linux_amd64"

# These are lines of the README.
debs="./hookstart_0.1.0_linux_amd64.deb ./hookstart-local_0.1.0_linux_amd64.deb"
install="sudo apt install $debs"
unpack='tar xzf hookstart_0.1.0_linux_amd64.tar.gz && PATH=$PWD/hookstart_0.1.0_linux_amd64/bin:$PATH'
start=hookstart-local
send="hookstart run --queue demo -- sh -c 'cat >&2' & curl …"
for line in "$install" "$unpack" "$start" "$send"; do
	grep -qxF -- "$line" "$root/README.md" || fail "README does not say: $line"
done

# The lines of the first terminal are in first, that of the second one is in second. There curl … becomes what the first one printed.
cat >"$root/minutes.sh" <<'END'
set -e
cd /root
rm -rf .hookstart
: > second.log
sh -ec "$(cat /first)" > first.log 2>&1 &
until grep -q 'is ready' first.log; do sleep 0.1; done
printed=$(grep -m1 -o 'curl .*' first.log)
body=$(printf %s "$printed" | sed -n "s/.*-d '\([^']*\)'.*/\1/p")
[ -n "$body" ]
second=$(cat /second)
sh -ec "$PATH_OF_ARCHIVE${second%curl …}$printed" > second.log 2>&1 &
until grep -qF "$body" second.log && grep -q '"success":true' second.log; do sleep 0.1; done
echo "the script got: $body"
END
# minutes runs them in a separate network, so that they disturb nothing and reach nothing, for two minutes at most.
minutes() { # minutes COMMAND OF THE FIRST TERMINAL
	printf '%s\n' "${1//0.1.0/$number}" >"$root/first"
	printf '%s\n' "$send" >"$root/second"
	timeout 120 unshare --net --pid --fork --kill-child --mount-proc="$root/proc" sh -c 'ip link set lo up && exec chroot "$0" env -i HOME=/root PATH="$1" PATH_OF_ARCHIVE="$2" sh /minutes.sh' \
		"$root" "$path" "${2-}" || {
		tail "$root"/root/*.log >&2
		fail "the first minutes"
	}
}
minutes "$unpack
$start" "cd /root && PATH=\$PWD/hookstart_${number}_linux_amd64/bin:\$PATH && "
rm -r "$root/root/hookstart_${number}_linux_amd64"
echo "from the archive: a webhook came to the end of a script"
chroot "$root" env -i PATH="$path" DEBIAN_FRONTEND=noninteractive sh -c "cd /root && ${install#sudo }" >"$root/root/first.log" 2>&1 || fail "$install: $(cat "$root/root/first.log")"
minutes "$start"
echo "from the packages, in three commands: $install; $start; $send: a webhook came to the end of a script"
