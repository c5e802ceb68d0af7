# bash completion for kubectl: asks "kubectl __complete" what may come next.

__kubectl_complete() {
    local IFS=$' \t\n' line program rest out directive typed prefix candidate name
    local -a words=() offered=() fitting=()
    COMPREPLY=()

    # The line up to the cursor, with its quotes; an alias of kubectl is called as it is.
    line=${COMP_LINE:0:COMP_POINT}
    read -r program rest <<< "$line"
    case $line in *[[:space:]]) rest="$rest ''" ;; esac
    eval "words=($rest)" 2> /dev/null || return
    typed=${words[${#words[@]} - 1]}
    out=$("$program" __complete "${words[@]}" 2> /dev/null)
    # An alias of the shell is none of its programs.
    if [[ -z $out ]] && alias "$program" > /dev/null 2>&1; then
        out=$(eval "$program __complete $rest" 2> /dev/null)
    fi
    directive=${out##*:}
    case $directive in '' | *[!0-9]*) return ;; esac
    out=${out%:*}
    ((directive & 1)) && return
    if [[ $(type -t compopt) ]]; then
        ((directive & 2)) && compopt -o nospace
        ((directive & 4)) && compopt +o default
        ((directive & 32)) && compopt -o nosort
    fi
    while IFS= read -r candidate; do
        [[ -n $candidate ]] && offered+=("$candidate")
    done <<< "$out"

    # What is typed of a flag's value is what stands behind the sign.
    case $typed in -*=*) typed=${typed#*=} ;; esac
    if ((directive & 8)); then
        __kubectl_files "$typed" "${offered[@]}"
        return
    fi
    if ((directive & 16)); then
        mapfile -t COMPREPLY < <(compgen -d -- "$typed")
        compopt -o filenames
        return
    fi
    for candidate in "${offered[@]}"; do
        [[ $candidate == "$typed"* ]] && fitting+=("$candidate")
    done
    # Readline replaces what follows the last colon or equal sign.
    prefix=
    case $COMP_WORDBREAKS in *:*) case $typed in *:*) prefix=${typed%:*}: ;; esac ;; esac
    if ((${#fitting[@]} == 1)); then
        name=${fitting[0]%%$'\t'*}
        COMPREPLY=("$(printf %q "${name#"$prefix"}")")
        return
    fi
    local longest=0 description room
    for candidate in "${fitting[@]}"; do
        name=${candidate%%$'\t'*}
        name=${name#"$prefix"}
        ((${#name} > longest)) && longest=${#name}
    done
    for candidate in "${fitting[@]}"; do
        name=${candidate%%$'\t'*}
        name=${name#"$prefix"}
        description=
        case $candidate in *$'\t'*) description=${candidate#*$'\t'} ;; esac
        room=$((${COLUMNS:-80} - longest - 4))
        # Others have a name alone, which is what a shell inserts if all begin alike.
        if [[ -n $description ]] && ((room > 8)); then
            ((${#description} > room)) && description=${description:0:room - 1}…
            printf -v name '%-*s  (%s)' "$longest" "$name" "$description"
        fi
        COMPREPLY+=("$name")
    done
}

# Folders, and files that end in one of the words.
__kubectl_files() {
    local typed=$1 path ending
    shift
    while IFS= read -r path; do
        [[ -d $path ]] && COMPREPLY+=("$path") && continue
        for ending in "$@"; do
            [[ $path == *".$ending" ]] && COMPREPLY+=("$path") && break
        done
    done < <(compgen -f -- "$typed")
    compopt -o filenames
}

complete -o default -F __kubectl_complete kubectl
