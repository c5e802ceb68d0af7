# fish completion for kubectl: asks "kubectl __complete" what may come next.

function __kubectl_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l lines ($words[1] __complete $words[2..-1] "$typed" 2>/dev/null)
    set -l directive (string match -r '^:[0-9]+$' -- $lines[-1] | string sub -s 2)
    test -n "$directive"; or return
    set -e lines[-1]
    test (math "$directive % 2") -eq 1; and return
    # A flag and its value are one word here. Quoted, for an empty list would leave nothing of a word.
    set -l prefix (string match -r -- '^-[^=]*=' "$typed")
    set -l value (string replace -r -- '^-[^=]*=' '' "$typed")
    if test (math "floor($directive / 8) % 2") -eq 1
        for ending in $lines
            __fish_complete_suffix "$value" .$ending
        end
        return
    end
    if test (math "floor($directive / 16) % 2") -eq 1
        __fish_complete_directories "$value"
        return
    end
    for line in $lines
        string length -q -- $line; and echo -- "$prefix$line"
    end
    if test (math "floor($directive / 4) % 2") -eq 0; and test (count $lines) -eq 0
        __fish_complete_path "$value"
    end
end

complete -c kubectl -e
complete -c kubectl -f -k -a '(__kubectl_complete)'
