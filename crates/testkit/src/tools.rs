//! Programs of others that tests run: found on the machine, or installed from its packages.
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

/// The program's path. A test that needs it fails loudly without it; it never skips.
pub fn program(name: &str, package: &str) -> PathBuf {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    find(name).unwrap_or_else(|| {
        install(package);
        find(name).unwrap_or_else(|| panic!("{package} was installed, but there is no {name}"))
    })
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn install(package: &str) {
    for arguments in
        [&["update", "-q"][..], &["install", "-q", "-y", "--no-install-recommends", package]]
    {
        let done = Command::new("apt-get")
            // Another test's program may be installing too.
            .args(["-o", "DPkg::Lock::Timeout=300"])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .status()
            .unwrap_or_else(|error| {
                panic!("{package} is needed and apt-get does not run: {error}")
            });
        assert!(done.success(), "apt-get {arguments:?} failed");
    }
}

/// Debian's Python with a module of its packages.
pub fn python(module: &str, package: &str) -> PathBuf {
    let python = program("python3", "python3").with_file_name("python3");
    let debian = PathBuf::from("/usr/bin/python3");
    let python = if debian.is_file() { debian } else { python };
    let imports = || {
        let tried = Command::new(&python).args(["-c", &format!("import {module}")]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !imports() {
        install(package);
        assert!(imports(), "{package} was installed, but {module} cannot be imported");
    }
    python
}
