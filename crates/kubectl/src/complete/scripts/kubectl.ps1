# powershell completion for kubectl: asks "kubectl __complete" what may come next.

Register-ArgumentCompleter -Native -CommandName 'kubectl' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    # The words up to the cursor; a word that begins there is empty.
    $words = @($commandAst.CommandElements |
        Where-Object { $_.Extent.StartOffset -lt $cursorPosition } |
        ForEach-Object { $_.Extent.Text })
    $program = $words[0]
    $words = @($words | Select-Object -Skip 1)
    if ($wordToComplete -eq '') { $words += '""' }
    $lines = @(Invoke-Expression "& $program __complete $($words -join ' ') 2>`$null")
    if ($lines.Count -eq 0 -or $lines[-1] -notmatch '^:(\d+)$') { return }
    $directive = [int]$Matches[1]
    if ($directive -band 1) { return }
    # A flag and its value are one word here.
    $prefix = ''
    $typed = $wordToComplete
    if ($typed -match '^(-[^=]*=)(.*)$') { $prefix = $Matches[1]; $typed = $Matches[2] }
    # Files are what the shell finds where nothing is offered.
    if ($directive -band 24) { return }
    $offered = @($lines | Select-Object -SkipLast 1 | Where-Object { $_ })
    if ($offered.Count -eq 0 -and ($directive -band 4)) { return '' }
    foreach ($line in $offered) {
        $name, $about = $line -split "`t", 2
        if (-not $name.StartsWith($typed)) { continue }
        if (-not $about) { $about = $name }
        $end = if ($directive -band 2) { '' } else { ' ' }
        [System.Management.Automation.CompletionResult]::new(
            "$prefix$name$end", $name, 'ParameterValue', $about)
    }
}
