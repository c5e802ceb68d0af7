#compdef kubectl
# zsh completion for kubectl: asks "kubectl __complete" what may come next.

_kubectl() {
    local out directive line name about ending
    local -a asked lines offered space

    # The words up to the cursor as they are typed; the last may be empty.
    asked=("${(@)words[2,CURRENT]}")
    [[ -z ${asked[-1]} ]] && asked[-1]="''"
    out=$(eval "${words[1]} __complete ${asked[*]}" 2> /dev/null)
    lines=("${(@f)out}")
    directive=${lines[-1]#:}
    [[ $directive == <-> ]] || return 1
    lines[-1]=()
    ((directive & 1)) && return 1
    # What is typed of a flag's value is what stands behind the sign.
    compset -P '-*='
    if ((directive & 8)); then
        ending="*.(${(j:|:)lines})"
        _files -g "$ending"
        return
    fi
    if ((directive & 16)); then
        _files -/
        return
    fi
    for line in $lines; do
        [[ -z $line ]] && continue
        name=${line%%$'\t'*}
        about=
        [[ $line == *$'\t'* ]] && about=${line#*$'\t'}
        offered+=("${name//:/\\:}${about:+:$about}")
    done
    ((directive & 2)) && space=(-S '')
    if ((${#offered})); then
        if ((directive & 32)); then
            _describe -V kubectl offered $space && return
        else
            _describe kubectl offered $space && return
        fi
    fi
    ((directive & 4)) || _files
}

if [[ ${funcstack[1]} == _kubectl ]]; then
    _kubectl "$@"
elif ((${+functions[compdef]})); then
    compdef _kubectl kubectl
fi
