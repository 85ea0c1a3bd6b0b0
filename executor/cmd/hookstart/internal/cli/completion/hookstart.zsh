#compdef hookstart
# Completion of hookstart for zsh. Made by: hookstart completion zsh
_hookstart() {
  local -a found=("${(@f)$(hookstart completion zsh -- "${(@)words[1,CURRENT]}" 2>/dev/null)}")
  if [[ $PREFIX == --*=* ]]; then compset -P '*='; fi
  if [[ $found[1] == _files ]]; then
    _files
  else
    _describe hookstart found
  fi
}
if [[ $funcstack[1] == _hookstart ]]; then
  _hookstart
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
  compdef _hookstart hookstart
fi
