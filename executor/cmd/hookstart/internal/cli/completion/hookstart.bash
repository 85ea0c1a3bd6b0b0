# Completion of hookstart for bash. Made by: hookstart completion bash
_hookstart() {
  local IFS=$'\n' cur=${COMP_WORDS[COMP_CWORD]} found
  if [[ $cur == = ]]; then cur=; fi
  found=$(hookstart completion bash -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)
  if [[ $found == _files ]]; then
    COMPREPLY=($(compgen -f -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$found" -- "$cur"))
  fi
}
complete -F _hookstart hookstart
