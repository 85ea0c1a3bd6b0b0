#!/usr/bin/env bash
# Installs, upgrades, downgrades, removes and purges the packages in a Debian root. Installs, upgrades and removes the RPMs in another one.
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need dpkg-deb lintian rpm
namespaces
root=$WORK/packages
debian_root "$root"
mount -t proc proc "$root/proc"
rpms=$WORK/rpms
stop() {
	umount "$root/proc"
	mountpoint -q "$rpms/proc" && umount "$rpms/proc"
	rm -rf "$root" "$rpms"
}
trap stop EXIT
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

# Links between documents work; the others lead to the project's repository.
while IFS=: read -r file _ link; do
	to=${link#*'('}
	to=${to%%[#)]*}
	[[ -z $to || $to == *:* || -e ${file%/*}/$to ]] || fail "$file links to $to, which the package does not have"
done < <(grep -rnoE '\]\([^)[:space:]]+\)' "$root"/usr/share/doc/hookstart* --include='*.md')

# After an upgrade, changed settings stay, unchanged settings are those of the new version, and files that do not belong to the
# packages are left alone.
echo HOOKSTART_ADMIN_TOKEN=mine >>"$root/etc/hookstart/local.env"
echo key >"$root/etc/hookstart/ingress.nk"
for state in hookstart hookstart-executor hookstart-nats; do inside mkdir "/var/lib/$state/data"; done
inside sh -c 'apt-get install -qy -o Dpkg::Options::=--force-confold /debs/now/*.deb' >/dev/null
[[ $(inside dpkg-query -W -f '${Version}' hookstart-local) == "$number"* ]] || fail "it is $(inside dpkg-query -W -f '${Version}' hookstart-local)"
grep -q mine "$root/etc/hookstart/local.env" || fail "the upgrade lost a setting"
! grep -q before "$root/etc/hookstart/executor.env" || fail "the upgrade kept a file that nobody changed"

# So it is on the way back to the version before.
inside sh -c 'apt-get install -qy --allow-downgrades -o Dpkg::Options::=--force-confold /debs/before/*.deb' >/dev/null
[[ $(inside dpkg-query -W -f '${Version}' hookstart-local) == 0.0.1* ]] || fail "it is $(inside dpkg-query -W -f '${Version}' hookstart-local)"
grep -q mine "$root/etc/hookstart/local.env" || fail "the downgrade lost a setting"
inside sh -c 'apt-get install -qy -o Dpkg::Options::=--force-confold /debs/now/*.deb' >/dev/null

# The commands are those of installing.md. What it says besides is looked at here, too.
guide=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/docs/installing.md
for line in '`apt remove hookstart hookstart-server hookstart-local`' 'sudo apt purge hookstart hookstart-server hookstart-local; sudo rm -r /etc/hookstart' \
	'sudo rm -r /etc/hookstart /var/lib/hookstart*' "The units' users stay"; do
	grep -qF -- "$line" "$guide" || fail "installing.md does not say: $line"
done
inside apt-get remove -qy hookstart hookstart-server hookstart-local >/dev/null
[[ ! -e $root/usr/bin/hookstart-local ]] || fail "remove left the program"
grep -q mine "$root/etc/hookstart/local.env" || fail "remove took the settings"
for state in hookstart hookstart-executor hookstart-nats; do [[ -d $root/var/lib/$state/data ]] || fail "remove took the data of $state"; done
inside apt-get purge -qy hookstart hookstart-server hookstart-local >/dev/null
for left in etc/hookstart/{local,ingress,executor,nats}.env etc/hookstart/nats var/lib/hookstart{,-executor,-nats}; do
	[[ ! -e $root/$left ]] || fail "purge left /$left"
done
[[ -e $root/etc/hookstart/ingress.nk ]] || fail "purge took a key that was not the package's"
inside rm -r /etc/hookstart
inside getent passwd hookstart-local >/dev/null || fail "purge deleted a user"
echo "installed, upgraded, downgraded, removed and purged: $(cd "$root/debs/now" && echo *.deb)"

lintian --fail-on error,warning --tag-display-limit 0 "$DIST"/*.deb || fail lintian
echo "lintian finds nothing above info without a reason"

# has fails unless a package of both kinds has the files: has PACKAGE FILE...
has() {
	local name=$1 file deb rpm
	shift
	deb=$(dpkg-deb --fsys-tarfile "$DIST/${name}_${number}_linux_amd64.deb" | tar -t | sed 's/^\.//')
	rpm=$(rpm -qlp "$DIST/${name}_${number}_linux_amd64.rpm")
	for file; do
		grep -qxF "$file" <<<"$deb" || fail "the deb $name has no $file"
		grep -qxF "${file/vendor-completions/site-functions}" <<<"$rpm" || fail "the RPM $name has no ${file/vendor-completions/site-functions}"
	done
}
has hookstart /usr/share/man/man1/hookstart.1.gz /usr/share/bash-completion/completions/hookstart \
	/usr/share/zsh/vendor-completions/_hookstart /usr/share/fish/vendor_completions.d/hookstart.fish
has hookstart-server /usr/share/man/man8/ingress.8.gz /usr/share/man/man8/executor.8.gz
has hookstart-local /usr/share/man/man8/hookstart-local.8.gz

# The scripts of the RPMs run in a Debian root, too. Dependencies are not looked at: there is no other RPM.
debian_root "$rpms"
mount -t proc proc "$rpms/proc"
names=(hookstart hookstart-server hookstart-local)
files=("${names[@]/%/_${number}_linux_amd64.rpm}")
files=("${files[@]/#/$DIST/}")
rpm -K --nosignature "${files[@]}" >/dev/null || fail "an RPM is damaged: $(rpm -K --nosignature "${files[@]}")"
in_rpms() { rpm --root "$rpms" "$@"; }
in_rpms --nodeps -i "${files[@]}"
for user in hookstart-ingress hookstart-executor hookstart-nats hookstart-local; do
	chroot "$rpms" getent passwd "$user" >/dev/null || fail "the RPMs make no user $user"
done
[[ $(chroot "$rpms" stat -c '%a %U' /var/lib/hookstart) == "700 hookstart-local" ]] || fail "/var/lib/hookstart of the RPM: $(chroot "$rpms" stat -c '%a %U' /var/lib/hookstart)"
in_rpms -V --nodeps "${names[@]}" || fail "rpm -V"
diff <(in_rpms -qc "${names[@]}" | grep . | sort) <(cd "$rpms" && find etc/hookstart -type f | sed 's|^|/|' | sort) || fail "the RPMs do not keep each setting"
in_rpms -qc hookstart-server | grep -q '^/etc/hookstart/nats/server.conf$' || fail "hookstart-server has no configuration of NATS"
echo HOOKSTART_ADMIN_TOKEN=mine >>"$rpms/etc/hookstart/local.env"
touch "$rpms/var/lib/hookstart/data"
in_rpms --nodeps -U --replacepkgs "${files[@]}"
grep -q mine "$rpms/etc/hookstart/local.env" || fail "an upgrade of the RPM lost a setting"
echo "RPMs are whole, installed and upgraded: $(in_rpms -qa | sort | tr '\n' ' ')"
in_rpms -e "${names[@]}"
[[ -z $(in_rpms -qa) && ! -e $rpms/usr/bin/hookstart-local && ! -e $rpms/etc/hookstart/executor.env ]] || fail "the RPMs are not removed"
grep -q mine "$rpms/etc/hookstart/local.env.rpmsave" || fail "the removal of the RPM took a setting"
[[ -e $rpms/var/lib/hookstart/data ]] || fail "the removal of the RPM took data"
chroot "$rpms" sh -c 'rm -r /etc/hookstart /var/lib/hookstart*'
echo "RPMs are removed: a changed setting is left as .rpmsave, and data are left"
