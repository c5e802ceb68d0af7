//! What shells run to complete words: each script asks `kubectl __complete` and does what it is told.
pub const BASH: &str = include_str!("scripts/kubectl.bash");
pub const ZSH: &str = include_str!("scripts/kubectl.zsh");
pub const FISH: &str = include_str!("scripts/kubectl.fish");
pub const POWERSHELL: &str = include_str!("scripts/kubectl.ps1");

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::Command;

    /// A kubectl that says the same whatever it is asked, and writes down what that was.
    fn stand_in(folder: &Path, says: &str) {
        let said = folder.join("said");
        std::fs::write(&said, says).expect("it is written");
        let text = format!(
            "#!/bin/sh\nprintf '[%s]' \"$@\" > {0}/asked\ncat {0}/said\necho noise >&2\n",
            folder.display()
        );
        let program = folder.join("kubectl");
        std::fs::write(&program, text).expect("it is written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, mode).expect("it is a program");
    }

    /// Completes a line in bash: what it asked, what it offers, and with which options. Machines without
    /// that shell have nobody to complete for.
    fn bash(line: &str, says: &str) -> Option<String> {
        let folder = tempfile::tempdir().expect("a folder");
        stand_in(folder.path(), says);
        // As readline cuts words: at colons and equal signs too.
        let script = format!(
            "{BASH}\ncompopt() {{ options+=\" $*\"; }}\nPATH={folder}:$PATH\ncd {folder}\n> a.yaml\n> b.txt\n\
             COMP_LINE='{line}'\nCOMP_POINT=${{#COMP_LINE}}\nCOLUMNS=60\n\
             word=${{COMP_LINE##*[ :=]}}\n__kubectl_complete kubectl \"$word\" x\n\
             printf '%s ' \"$(cat asked)\"; printf '<%s>' \"${{COMPREPLY[@]}}\"; echo \"$options\"",
            folder = folder.path().display()
        );
        let output = Command::new("bash").args(["--norc", "-c", &script]).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        Some(format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
    }

    fn check(line: &str, says: &str, expected: &str) {
        if let Some(said) = bash(line, says) {
            assert_eq!(said, expected, "{line}");
        }
    }

    #[test]
    fn bash_asks_and_offers() {
        check(
            "kubectl get po",
            "pods\npodtemplates\n:4\n",
            "[__complete][get][po] <pods><podtemplates> +o default",
        );
        check("kubectl get ", "pods\n:4\n", "[__complete][get][] <pods> +o default");
        check("kubectl get \"a b\" c", "c\n:0\n", "[__complete][get][a b][c] <c>");
        check("kubectl lo", "logs\tPrint logs\n:4\n", "[__complete][lo] <logs> +o default");
        check(
            "kubectl l",
            "label\tUpdate the labels\nlogs\tPrint logs\n:4\n",
            "[__complete][l] <label  (Update the labels)><logs   (Print logs)> +o default",
        );
        // What the server offers and nobody typed is left out.
        check("kubectl get po", "pods\nnodes\n:4\n", "[__complete][get][po] <pods> +o default");
        check(
            "kubectl logs d",
            "deployments/\n:6\n",
            "[__complete][logs][d] <deployments/> -o nospace +o default",
        );
        check("kubectl x", "", "[__complete][x] <>");
    }

    #[test]
    fn bash_cuts_words_where_readline_does() {
        check(
            "kubectl get -n=ku",
            "kube-system\n:4\n",
            "[__complete][get][-n=ku] <kube-system> +o default",
        );
        check(
            "kubectl get --namespace=",
            "a\nb\n:4\n",
            "[__complete][get][--namespace=] <a><b> +o default",
        );
        check(
            "kubectl port-forward p 80:",
            "80:8080\n80:443\n:4\n",
            "[__complete][port-forward][p][80:] <8080><443> +o default",
        );
        check("kubectl cp n/p", "n/pod:\n:2\n", "[__complete][cp][n/p] <n/pod:> -o nospace");
    }

    #[test]
    fn bash_completes_files_by_their_ends() {
        check(
            "kubectl apply -f ",
            "json\nyaml\n:8\n",
            "[__complete][apply][-f][] <a.yaml> -o filenames",
        );
        check("kubectl x ", ":1\n", "[__complete][x][] <>");
    }

    #[test]
    fn other_shells_can_read_theirs() {
        for (shell, script) in [("bash", BASH), ("zsh", ZSH), ("fish", FISH)] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("script");
            std::fs::write(&path, script).expect("it is written");
            // None of them runs anything then.
            let Ok(output) = Command::new(shell).arg("-n").arg(&path).output() else { continue };
            assert!(
                output.status.success(),
                "{shell}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        assert!(POWERSHELL.contains("Register-ArgumentCompleter"));
    }
}
