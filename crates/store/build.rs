//! Compiles the protocol files without protoc.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/etcd.proto"], ["proto"])?;
    // Values arrive as shared bytes: no copy between the socket's buffer and the cache.
    tonic_prost_build::configure().bytes(".").compile_fds(files)?;
    Ok(())
}
