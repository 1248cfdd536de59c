//! A root that lacks what a sandbox takes for granted: for tests of what is added to it.

use crate::{Area, Run, artefacts, skip};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A root with a shell and the programs of `PROGRAMS`, and an `etc` without a `resolv.conf`.
#[derive(Debug)]
pub struct Root<'a> {
    area: &'a Area,
    /// Where it is on the host.
    pub path: PathBuf,
}

impl<'a> Root<'a> {
    /// None where a program is not there, which is said and counted.
    pub fn of(area: &'a Area) -> Option<Self> {
        let path = area.directory(&area.root().join("root"));
        let root = Self { area, path };
        for directory in ["bin", "etc/sub/deep", "etc/own", "data"] {
            root.directory(directory);
        }
        for name in PROGRAMS {
            root.take(name, &skip::program(name)?);
        }
        root.file("etc/motd", "of the root\n");
        root.file("etc/sub/deep/file", "deep\n");
        root.file("etc/own/file", "");
        root.file("etc/single", "");
        root.file("etc/nsswitch.conf", "hosts: files dns\n");
        root.file("etc/hosts", "192.0.2.1 origin.test\n192.0.2.2 other\n");
        symlink("motd", root.path.join("etc/link")).expect("link");
        let secret = root.file("etc/secret", "secret\n");
        fs::set_permissions(secret, Permissions::from_mode(0o000)).expect("chmod");
        Some(root)
    }

    /// Makes a directory in it, and those above.
    pub fn directory(&self, path: &str) -> PathBuf {
        for above in Path::new(path).ancestors().skip(1) {
            self.area.directory(&self.path.join(above));
        }
        self.area.directory(&self.path.join(path))
    }

    /// Writes a file in it.
    pub fn file(&self, path: &str, text: &str) -> PathBuf {
        self.area.file(&self.path.join(path), text)
    }

    /// What a file in it says.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path.join(path)).expect("read")
    }

    /// Copies a program, and the libraries that it is loaded with to where they are on the host.
    fn take(&self, name: &str, program: &Path) {
        self.copy(program, &format!("bin/{name}"));
        let told = Command::new("ldd").arg(program).output().expect("run ldd");
        let told = String::from_utf8(told.stdout).expect("text");
        for library in told.split_whitespace().filter(|word| word.starts_with('/')) {
            self.copy(Path::new(library), library.trim_start_matches('/'));
        }
    }

    fn copy(&self, from: &Path, to: &str) {
        let above = Path::new(to).parent().and_then(Path::to_str);
        self.directory(above.expect("a directory"));
        let to = self.path.join(to);
        fs::copy(from, &to).expect("copy");
        artefacts::open_to_all(&to);
    }

    /// A run without a `filesystem_policy`: it may write what its caller may. `more` stands in the policy.
    pub fn run_freely(&self, more: &str, line: &str) -> Run<'a> {
        let policy = format!(
            "version: 1\n\
             network_policies: {{origin: {{endpoints: [{{host: origin.test, port: 443}}]}}}}\n\
             resolver: {{hosts: {{origin.test: [192.0.2.3]}}}}\n{more}\n",
        );
        self.with(&policy, line)
    }

    /// A run that sees the programs and what `files` lists.
    pub fn run(&self, files: &str, line: &str) -> Run<'a> {
        let programs = ["/bin", "/lib", "/lib64"].into_iter();
        let programs: Vec<_> = programs
            .filter(|path| self.path.join(&path[1..]).exists())
            .collect();
        let policy = format!(
            "version: 1\n\
             filesystem_policy: {{include_workdir: false, {}}}\n\
             landlock: {{compatibility: hard_requirement}}\n\
             network_policies: {{origin: {{endpoints: [{{host: origin.test, port: 443}}]}}}}\n\
             resolver: {{hosts: {{origin.test: [192.0.2.3]}}}}\n",
            files.replace("PROGRAMS", &programs.join(", ")),
        );
        self.with(&policy, line)
    }

    fn with(&self, policy: &str, line: &str) -> Run<'a> {
        Run::with_text(self.area, policy)
            .option("--rootfs")
            .option(&self.path)
            .option("--cwd")
            .option("/")
            .shell(line)
    }
}

/// As root first, for the mounts, and then as the caller.
pub fn after<'a>(area: &Area, mounts: &str, run: Run<'a>) -> Run<'a> {
    let uid = area.caller().uid();
    let line =
        format!("set -e; {mounts}; exec setpriv --reuid={uid} --regid={uid} --clear-groups \"$@\"");
    run.as_root_first()
        .under(["unshare", "--mount", "sh", "-c", &line, "sh"])
}

const PROGRAMS: [&str; 5] = ["sh", "cat", "rm", "mv", "getent"];
