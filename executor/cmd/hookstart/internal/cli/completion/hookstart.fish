# Completion of hookstart for fish. Made by: hookstart completion fish
function __hookstart_complete
  set -l found (hookstart completion fish -- (commandline -opc) (commandline -ct) 2>/dev/null)
  if test "$found" = _files
    __fish_complete_path (commandline -ct | string replace -r '^--[^=]*=' '')
  else
    printf '%s\n' $found
  end
end
complete -c hookstart -f -a '(__hookstart_complete)'
