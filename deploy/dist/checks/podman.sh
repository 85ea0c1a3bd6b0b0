# Podman with its own storage below WORK: runc, cgroupfs and vfs work in containers, too.
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
need podman buildah runc
as_root
store=(--root "$WORK/podman" --runroot "$WORK/podman.run" --storage-driver vfs --cgroup-manager cgroupfs)
p() { podman "${store[@]}" --runtime runc "$@"; }
confined=(--read-only --cap-drop all --security-opt no-new-privileges)

# load loads the shipped images under the names and the tag that the files of deploy use.
load() {
	local name
	for name; do
		p load -q -i "$DIST/${name}_${number}_linux_amd64.oci.tar" >/dev/null
		p tag "docker.io/hookstart/$name:$number" "docker.io/hookstart/$name:latest" "docker.io/hookstart/$name:dev"
	done
}

# works skips the check if no container runs here.
works() {
	load hookstart
	p run --rm docker.io/hookstart/hookstart:latest --version >/dev/null 2>"$WORK/podman.log" || {
		tail -3 "$WORK/podman.log" >&2
		skip "podman runs no container on this machine"
	}
}
