//! Compiles the protocol files without protoc.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/etcd.proto"], ["proto"])?;
    // Values leave as the store's own bytes: no copy between the engine and the socket.
    tonic_prost_build::configure().bytes(".").compile_fds(files)?;
    Ok(())
}
