_clap_complete_ringfence() {
    local IFS=$'\013'
    local _CLAP_COMPLETE_INDEX=${COMP_CWORD}
    local _CLAP_COMPLETE_COMP_TYPE=${COMP_TYPE}
    if compopt +o nospace 2> /dev/null; then
        local _CLAP_COMPLETE_SPACE=false
    else
        local _CLAP_COMPLETE_SPACE=true
    fi
    local words=("${COMP_WORDS[@]}")
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        words[COMP_CWORD]="$2"
    fi
    COMPREPLY=( $( \
        _CLAP_IFS="$IFS" \
        _CLAP_COMPLETE_INDEX="$_CLAP_COMPLETE_INDEX" \
        _CLAP_COMPLETE_COMP_TYPE="$_CLAP_COMPLETE_COMP_TYPE" \
        _CLAP_COMPLETE_SPACE="$_CLAP_COMPLETE_SPACE" \
        RINGFENCE_COMPLETE="bash" \
        "ringfence" -- "${words[@]}" \
    ) )
    if [[ $? != 0 ]]; then
        unset COMPREPLY
    elif [[ $_CLAP_COMPLETE_SPACE == false ]] && [[ "${COMPREPLY-}" =~ [=/:]$ ]]; then
        compopt -o nospace
    fi
}
if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -o nospace -o bashdefault -o nosort -F _clap_complete_ringfence ringfence
else
    complete -o nospace -o bashdefault -F _clap_complete_ringfence ringfence
fi


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
