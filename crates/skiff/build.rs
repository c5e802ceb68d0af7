//! Functions that are the same to the byte are one in what is shipped: kinds and codecs make many of them.
fn main() {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    // The linker there is Rust's own. Others may not know the word.
    let target = "x86_64-unknown-linux-gnu";
    if is("PROFILE", "release") && is("TARGET", target) && is("HOST", target) {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
