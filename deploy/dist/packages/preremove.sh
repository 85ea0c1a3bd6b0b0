#!/bin/sh
# Before a removal, for which Debian passes "remove" and Fedora 0. In an upgrade, what runs goes on until the new version is there.
set -e
case "$1" in
  remove | 0)
    if [ -d /run/systemd/system ]; then
      systemctl stop @PATTERNS@
      systemctl disable @UNITS@
    fi
    ;;
esac
