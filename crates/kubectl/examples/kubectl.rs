//! kubectl without the rest of the binary, for who works on it: `cargo run -p kubectl --example kubectl -- get pods`.
fn main() -> std::process::ExitCode {
    kubectl::main(std::env::args_os().skip(1).collect())
}
