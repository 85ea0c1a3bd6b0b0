#!/bin/sh
# After an installation or an upgrade: Debian passes "configure" and the version before, Fedora the number of versions. Nothing is
# started that did not run before: the settings come first.
set -e
if command -v systemd-sysusers > /dev/null && [ -e /usr/lib/sysusers.d/@PACKAGE@.conf ]; then
  systemd-sysusers @PACKAGE@.conf
  # It needs /proc, which a plain chroot lacks; then a boot makes the folders.
  if [ -e /proc/self ]; then
    systemd-tmpfiles --create @PACKAGE@.conf
  fi
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  for unit in @PATTERNS@; do
    systemctl try-restart "$unit" || echo "@PACKAGE@: $unit did not start again: systemctl status $unit" >&2
  done
fi
