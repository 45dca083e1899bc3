use super::*;

/// A made-up mount point, removed at the end.
struct Mount(std::path::PathBuf);

impl Mount {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("morphgl-cgroup-{name}-{}", std::process::id())))
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("room on the disk");
        fs::write(path, text).expect("room on the disk");
    }

    #[track_caller]
    fn check(&self, own: &str, limit: u64, free: u64) {
        assert_eq!(cgroups(&self.0, own), (limit, free));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A test that fails before it writes has nothing to remove.
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn the_tightest_cgroup_above_counts() {
    let (mount, own) = (Mount::new("v2"), "0::/a/b\n");
    mount.check(own, u64::MAX, u64::MAX);
    mount.write("a/b/memory.max", "max\n");
    mount.check(own, u64::MAX, u64::MAX);
    mount.write("a/memory.max", "1000\n");
    mount.write("a/memory.current", "700\n");
    mount.write("a/memory.stat", "anon 500\ninactive_file 150\n");
    mount.check(own, 1000, 450);
    mount.write("a/b/memory.max", "900\n");
    mount.write("a/b/memory.current", "20\n");
    mount.check(own, 900, 880);
}

#[test]
fn cgroups_of_version_1_count_too() {
    let (mount, own) = (Mount::new("v1"), "12:cpu,cpuacct:/a\n5:blkio,memory:/a/b\n1:name=systemd:/a\n0::/a\n");
    mount.check(own, u64::MAX, u64::MAX);
    // What the kernel writes for no limit.
    mount.write("memory/memory.limit_in_bytes", "9223372036854771712\n");
    mount.check(own, 9_223_372_036_854_771_712, 9_223_372_036_854_771_712);
    mount.write("memory/a/b/memory.limit_in_bytes", "1000\n");
    mount.write("memory/a/b/memory.usage_in_bytes", "700\n");
    mount.write("memory/a/b/memory.stat", "inactive_file 1\ntotal_inactive_file 150\n");
    mount.check(own, 1000, 450);
    // Both versions limit: the tighter one counts, of each question.
    mount.write("a/memory.max", "2000\n");
    mount.write("a/memory.current", "1900\n");
    mount.check(own, 1000, 100);
}

#[test]
fn a_container_is_limited_at_its_mount_point() {
    let mount = Mount::new("container");
    mount.write("memory/memory.limit_in_bytes", "500\n");
    mount.check("3:memory:/docker/0123\n", 500, 500);
}
