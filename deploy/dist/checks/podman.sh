# Configures Podman with separate storage below WORK. It uses runc, cgroupfs and vfs, because these work inside a container, too.
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need podman runc iptables jq catatonit
as_root
# These are its only settings. It neither uses nor changes those of the machine.
cat >"$WORK/storage.conf" <<END
[storage]
driver = "vfs"
graphroot = "$WORK/podman"
runroot = "$WORK/podman.run"
END
cat >"$WORK/containers.conf" <<END
[containers]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "shipped"
[engine.runtimes]
shipped = ["$WORK/runtime"]
[network]
network_config_dir = "$WORK/networks"
END
# Podman raises limits of processes, which root may not do without CAP_SYS_RESOURCE.
cat >"$WORK/runtime" <<'END'
#!/bin/sh
before=
for argument; do
  if [ "$before" = --bundle ]; then
    jq 'del(.process.rlimits)' "$argument/config.json" > "$argument/config.json.new"
    mv "$argument/config.json.new" "$argument/config.json"
  fi
  before=$argument
done
exec runc "$@"
END
chmod +x "$WORK/runtime"
export CONTAINERS_CONF=$WORK/containers.conf CONTAINERS_STORAGE_CONF=$WORK/storage.conf
mkdir -p "$WORK/networks"
confined=(--read-only --cap-drop all --security-opt no-new-privileges)

# load loads the shipped images under the names and the tag that the files of deploy use.
load() {
	local name
	for name; do
		podman load -q -i "$DIST/${name}_${number}_linux_amd64.oci.tar" >/dev/null
		podman tag "docker.io/hookstart/$name:$number" "docker.io/hookstart/$name:latest" "docker.io/hookstart/$name:dev"
	done
}

# import makes an image from a folder: import NAME FOLDER CHANGE...
import() {
	local name=$1 folder=$2 changes=() change
	shift 2
	for change; do changes+=(--change "$change"); done
	tar -C "$folder" -cf - . | podman import -q "${changes[@]}" - "$name" >/dev/null
}

# works skips the check if podman cannot run a container on this machine.
works() {
	load hookstart
	podman run --rm docker.io/hookstart/hookstart:latest --version >/dev/null 2>"$WORK/podman.log" || {
		tail -3 "$WORK/podman.log" >&2
		skip "podman runs no container on this machine"
	}
}
