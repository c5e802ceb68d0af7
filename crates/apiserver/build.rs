//! Compiles the protocol file without protoc.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/kms.proto"], ["proto"])?;
    // Sorted maps: the same annotations are the same bytes.
    tonic_prost_build::configure().btree_map(".").compile_fds(files)?;
    Ok(())
}
