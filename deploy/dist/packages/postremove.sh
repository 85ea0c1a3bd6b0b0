#!/bin/sh
# After a removal. Only purge, which Fedora does not have, deletes data: what the units kept, and our own settings, but no key or
# certificate that was put into /etc/hookstart.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
if [ "$1" = purge ]; then
  for state in @STATE@; do
    # A mount point is emptied, but cannot be removed: rm says so, and the rest goes on.
    rm -rf "/var/lib/$state" "/var/lib/private/$state" || true
  done
  if [ -d /etc/hookstart ]; then
    rmdir --ignore-fail-on-non-empty /etc/hookstart
  fi
fi
