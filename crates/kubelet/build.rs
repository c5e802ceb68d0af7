//! Compiles the protocol files without protoc.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let names =
        ["csi", "deviceplugin", "dra", "drahealth", "pluginregistration", "podresources", "pods"];
    let files = protox::compile(names.map(|name| format!("proto/{name}.proto")), ["proto"])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
