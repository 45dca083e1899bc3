use super::place_ptx;
use std::fs;

#[test]
fn ptx_is_placed_for_the_macro_and_may_be_missing() {
    let directory = std::env::temp_dir().join(format!("morphgl-cuda-build-{}", std::process::id()));
    let (root, out) = (directory.join("crate"), directory.join("out"));
    fs::create_dir_all(root.join("kernels")).expect("disk space");
    fs::write(root.join("kernels/a.ptx"), "// PTX").expect("disk space");
    for file in ["kernels/a.cu", "kernels/b.cu"] {
        place_ptx(&root, &out, file);
    }
    assert_eq!(fs::read_to_string(out.join("kernels/a.cu.ptx")).expect("placed"), "// PTX");
    assert_eq!(fs::read_to_string(out.join("kernels/b.cu.ptx")).expect("placed"), "");
    fs::remove_dir_all(&directory).expect("the directory exists");
}
