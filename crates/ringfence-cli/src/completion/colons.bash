
# Bash divides words at colons, and names contain colons. The words are joined again, and what stands
# before the last colon is not proposed, since bash would insert it twice.
_ringfence() {
    local -a joined=()
    local i word
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 0)) && [[ $word == :* || ${COMP_WORDS[i - 1]} == *: ]]; then
            joined[${#joined[@]} - 1]+=$word
        else
            joined+=("$word")
        fi
    done
    local COMP_WORDS=("${joined[@]}")
    local COMP_CWORD=$((${#joined[@]} - 1))
    local typed=${joined[COMP_CWORD]}
    _clap_complete_ringfence "$1" "$typed" "$3"
    local before=${typed%"${typed##*:}"}
    local -a proposed=("${COMPREPLY[@]#"$before"}")
    # Bash inserts a proposal as it is, and a file may be called $(reboot).
    COMPREPLY=()
    for word in "${proposed[@]}"; do
        [[ -z $word ]] || printf -v "COMPREPLY[${#COMPREPLY[@]}]" '%q' "$word"
    done
}
complete -o nospace -o bashdefault -F _ringfence ringfence
