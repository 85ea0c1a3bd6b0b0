#!/usr/bin/env bash
# Installs, upgrades, downgrades, removes and purges the packages in a Debian root.
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need dpkg-deb lintian rpm
namespaces
root=$WORK/packages
debian_root "$root"
mount -t proc proc "$root/proc"
trap 'umount "$root/proc" && rm -rf "$root"' EXIT
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

# The previous version is this version with another number, and with another line in the settings, which upgrades keep if they were
# changed.
mkdir -p "$root/debs/before" "$root/debs/now"
for name in hookstart hookstart-server hookstart-local; do
	deb=${name}_${number}_linux_amd64.deb
	cp "$DIST/$deb" "$root/debs/now/"
	dpkg-deb -R "$DIST/$deb" "$root/unpacked"
	sed -i 's/^Version: .*/Version: 0.0.1/' "$root/unpacked/DEBIAN/control"
	for settings in "$root"/unpacked/etc/hookstart/*.env; do
		[[ ! -e $settings ]] || echo '# a line of the version before' >>"$settings"
	done
	dpkg-deb -Znone -b "$root/unpacked" "$root/debs/before/$name.deb" >/dev/null
	rm -r "$root/unpacked"
done

inside sh -c 'apt-get install -qy /debs/before/*.deb' >/dev/null
for user in hookstart-ingress hookstart-executor hookstart-nats hookstart-local; do
	inside getent passwd "$user" >/dev/null || fail "no user $user"
done
[[ $(inside stat -c '%a %U' /var/lib/hookstart) == "700 hookstart-local" ]] || fail "/var/lib/hookstart: $(inside stat -c '%a %U' /var/lib/hookstart)"
[[ $(inside stat -c '%a %U' /etc/hookstart/executor.env) == "600 root" ]] || fail "others may read executor.env"
for program in hookstart hookstart-local ingress executor; do
	inside "$program" --version | grep -q "^$program v" || fail "$program --version"
done
inside systemd-analyze verify hookstart-local.service hookstart-ingress.service hookstart-executor.service 'hookstart-run@orders.service' 2>&1 |
	grep -v 'hookstart/orders is not executable' | grep . && fail "systemd-analyze verify"

# After an upgrade, changed settings stay, unchanged settings are those of the new version, and files that do not belong to the
# packages are left alone.
echo HOOKSTART_ADMIN_TOKEN=mine >>"$root/etc/hookstart/local.env"
echo key >"$root/etc/hookstart/ingress.nk"
inside mkdir -p /var/lib/hookstart/data
inside sh -c 'apt-get install -qy -o Dpkg::Options::=--force-confold /debs/now/*.deb' >/dev/null
[[ $(inside dpkg-query -W -f '${Version}' hookstart-local) == "$number"* ]] || fail "it is $(inside dpkg-query -W -f '${Version}' hookstart-local)"
grep -q mine "$root/etc/hookstart/local.env" || fail "the upgrade lost a setting"
! grep -q before "$root/etc/hookstart/executor.env" || fail "the upgrade kept a file that nobody changed"

# So it is on the way back to the version before.
inside sh -c 'apt-get install -qy --allow-downgrades -o Dpkg::Options::=--force-confold /debs/before/*.deb' >/dev/null
[[ $(inside dpkg-query -W -f '${Version}' hookstart-local) == 0.0.1* ]] || fail "it is $(inside dpkg-query -W -f '${Version}' hookstart-local)"
grep -q mine "$root/etc/hookstart/local.env" || fail "the downgrade lost a setting"
inside sh -c 'apt-get install -qy -o Dpkg::Options::=--force-confold /debs/now/*.deb' >/dev/null

inside apt-get remove -qy hookstart hookstart-server hookstart-local >/dev/null
[[ ! -e $root/usr/bin/hookstart-local ]] || fail "remove left the program"
grep -q mine "$root/etc/hookstart/local.env" || fail "remove took the settings"
[[ -d $root/var/lib/hookstart/data ]] || fail "remove took the data"
inside apt-get purge -qy hookstart hookstart-server hookstart-local >/dev/null
[[ ! -e $root/etc/hookstart/local.env && ! -e $root/etc/hookstart/nats/server.conf && ! -e $root/var/lib/hookstart ]] || fail "purge left settings or data"
[[ -e $root/etc/hookstart/ingress.nk ]] || fail "purge took a key that was not the package's"
echo "installed, upgraded, downgraded, removed and purged: $(cd "$root/debs/now" && echo *.deb)"

lintian --fail-on error,warning --tag-display-limit 0 "$DIST"/*.deb || fail lintian
echo "lintian finds nothing above info without a reason"

for name in hookstart hookstart-server hookstart-local; do
	package=$DIST/${name}_${number}_linux_amd64.rpm
	rpm -K --nosignature "$package" >/dev/null || fail "$package is damaged"
	mkdir -p "$root/rpm"
	rpm --root "$root/rpm" --nodeps --noscripts -i "$package"
	rpm --root "$root/rpm" -V --nodeps --noscripts --nouser --nogroup "$name" || fail "rpm -V $name"
done
rpm --root "$root/rpm" -qc hookstart-local | grep -q '^/etc/hookstart/local.env$' || fail "the RPM does not keep local.env"
echo "RPMs are whole: $(rpm --root "$root/rpm" -qa | sort | tr '\n' ' ')"
