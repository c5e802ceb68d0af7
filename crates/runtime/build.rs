//! Compiles the protocol file without protoc, and keeps what it declares for who prints messages.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_file("proto/cri.proto")?;
    let folder = std::env::var("OUT_DIR")?;
    std::fs::write(format!("{folder}/cri.descriptors"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
