//! Compiles the protocol files; protox stands in for protoc, which a fresh machine lacks.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["tikvpb.proto", "cdcpb.proto", "pdpb.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(files)?;
    Ok(())
}
