//! Compilation of kernels as C++: into the crate, or into shared libraries, plain and for sanitizers.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Name of the emulation's own library, to which libraries of kernels are linked.
pub(crate) const EMULATION: &str = "morphgl_emulation";

/// Environment variable with the absolute path of the folder for shared libraries. Without it, kernels are linked into the crate.
const FOLDER: &str = "MORPHGL_EMULATION_LIBRARIES";

/// A shared library is compiled three times, into folders of these names: as it is, for the address and for the thread sanitizer.
const VARIANTS: [&str; 3] = ["plain", "address", "thread"];

/// C++ files of a library.
pub(crate) struct Library<'a> {
    pub(crate) name: &'a str,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) include: Vec<&'a str>,
    /// Whether these are kernels, which are instrumented for a sanitizer. The emulation is not: it calls the sanitizer to declare its
    /// fibers and the bounds of its buffers.
    pub(crate) kernels: bool,
}

impl Library<'_> {
    /// Compiles the library, and links the crate to it.
    pub(crate) fn compile(&self) {
        for file in &self.files {
            println!("cargo::rerun-if-changed={}", file.display());
        }
        for include in &self.include {
            println!("cargo::rerun-if-changed={include}");
        }
        println!("cargo::rerun-if-env-changed={FOLDER}");
        let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else {
            self.sources().compile(self.name);
            return;
        };
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        for variant in VARIANTS {
            self.share(variant, &folder.join(variant), &out.join(variant));
        }
        println!("cargo::rustc-link-search=native={}", folder.join(VARIANTS[0]).display());
        println!("cargo::rustc-link-lib=dylib={}", self.name);
    }

    /// The compiler, and what is to be compiled.
    fn sources(&self) -> cc::Build {
        let mut build = compiler();
        build.files(&self.files).includes(&self.include).flag("-xc++").define("MORPHGL_EMULATION", None);
        build
    }

    /// Hash of the inputs of a variant: sources, headers, settings.
    fn content(&self, variant: &str) -> String {
        let mut paths = self.files.clone();
        for include in &self.include {
            let entries = fs::read_dir(include).unwrap_or_else(|error| panic!("{include}: {error}"));
            let mut headers: Vec<PathBuf> =
                entries.flatten().map(|entry| entry.path()).filter(|p| p.is_file()).collect();
            headers.sort();
            paths.extend(headers);
        }
        let mut hasher = DefaultHasher::new();
        (variant, self.kernels, include_str!("compile.rs"), env::var_os("CXX"), env::var_os("CXXFLAGS"))
            .hash(&mut hasher);
        for path in paths {
            let content = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path, content).hash(&mut hasher);
        }
        format!("{:016x}", hasher.finish())
    }

    /// Compiles a variant into `folder`, by way of `objects`, unless it was made of the same inputs. The library is
    /// replaced by a rename: running programs keep the earlier one.
    fn share(&self, variant: &str, folder: &Path, objects: &Path) {
        let [library, new, stamp] =
            ["so", "so.new", "content"].map(|ending| folder.join(format!("lib{}.{ending}", self.name)));
        let content = self.content(variant);
        if library.exists() && fs::read_to_string(&stamp).is_ok_and(|made_of| made_of == content) {
            return;
        }
        let sanitizer = (variant != VARIANTS[0]).then_some(variant);
        // Programs are linked to the library: its thread-local variables lie beside theirs.
        let flags = ["-ftls-model=initial-exec", "-fno-semantic-interposition"];
        let mut build = self.sources();
        build.flags(flags).pic(true).out_dir(objects);
        let mut link = compiler().try_get_compiler().unwrap_or_else(|error| panic!("{error}")).to_command();
        if let Some(sanitizer) = sanitizer {
            build.define(&format!("MORPHGL_SANITIZE_{}", sanitizer.to_uppercase()), None).debug(true);
            if self.kernels {
                let instrument = format!("-fsanitize={sanitizer}");
                build.flag(&instrument).flag("-fno-omit-frame-pointer");
                link.arg(instrument);
            }
        }
        for folder in [folder, objects] {
            fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        }
        link.arg(format!("-Wl,-soname,lib{}.so", self.name));
        link.args(["-shared", "-o"]).arg(&new).args(build.compile_intermediates());
        if self.kernels {
            link.arg("-L").arg(folder).arg(format!("-l{EMULATION}"));
        }
        let status = link.status().unwrap_or_else(|error| panic!("{link:?}: {error}"));
        assert!(status.success(), "{link:?}: {status}");
        let kept = fs::rename(&new, &library).and_then(|()| fs::write(&stamp, content));
        kept.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    }
}

/// Compiler settings of kernels and of the emulation.
fn compiler() -> cc::Build {
    let mut build = cc::Build::new();
    // No contraction of a * b + c: kernels request fused operations explicitly.
    build.cpp(true).std("c++20").opt_level(2).flag("-ffp-contract=off").flag("-Wno-unknown-pragmas");
    build
}
