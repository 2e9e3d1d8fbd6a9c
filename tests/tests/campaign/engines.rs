//! Redis 8.0 beside the machine's own redis-server, out of the image that clusters of real nodes run: an upgrade here is one of programs.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// What is upgraded to.
pub(super) const NEXT: &str = "8.0";

/// Flags by which kun has both; none where nothing can make the image. There an upgrade is a change of the template.
pub(super) fn flags(folder: &Path) -> Result<Vec<String>> {
    let Some(images) = tests::cluster::built("images.sh", "campaign")? else { return Ok(Vec::new()) };
    let next = unpacked(&images.join(format!("redis-{NEXT}.tar")), folder)?;
    let flags = [on_path("redis-server")?, next].map(|path| format!("--redis-server={}", path.display()));
    Ok(flags.into())
}

fn on_path(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").context("PATH")?;
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("no {name} on the PATH"))
}

/// Takes the image apart, and returns a program that runs its redis-server with the libraries that it brings.
fn unpacked(image: &Path, folder: &Path) -> Result<PathBuf> {
    let (parts, root) = (folder.join("parts"), folder.join("root"));
    untar(image, &parts)?;
    let blob = |object: &Value| -> Result<PathBuf> {
        let digest = object["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:")).context("digest")?;
        Ok(parts.join("blobs/sha256").join(digest))
    };
    let json = |path: &Path| -> Result<Value> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
    let index = json(&parts.join("index.json"))?;
    for layer in json(&blob(&index["manifests"][0])?)?["layers"].as_array().context("layers")? {
        untar(&blob(layer)?, &root)?;
    }
    let loader = find(&root.join("usr"), &|name| name.starts_with("ld-linux")).context("the loader")?;
    let library = find(&root.join("usr"), &|name| name == "libc.so.6").context("the library")?;
    let libraries = library.parent().context("libraries")?;
    let server = root.join("usr/local/bin/redis-server");
    loaded_by(&server, &loader, &folder.join("ld"))?;
    let program = folder.join("bin/redis-server");
    fs::create_dir_all(folder.join("bin"))?;
    let text = format!("#!/bin/sh\nLD_LIBRARY_PATH={} exec {} \"$@\"\n", libraries.display(), server.display());
    fs::write(&program, text)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}

/// Has a program begin with the loader that belongs to it, under a name that is no longer than the one that is written in it. Were the loader
/// started, and told the program, Redis could not write into its title which address it is at.
fn loaded_by(program: &Path, loader: &Path, name: &Path) -> Result<()> {
    std::os::unix::fs::symlink(loader, name)?;
    let mut bytes = fs::read(program)?;
    let begin = bytes.windows(4).position(|window| window == b"/lib").context("the loader's name")?;
    let old = bytes.iter().skip(begin).position(|byte| *byte == 0).context("the end of the loader's name")?;
    let new = name.as_os_str().as_bytes();
    ensure!(new.len() <= old, "{} is longer than {old} bytes", name.display());
    for (place, byte) in bytes.iter_mut().skip(begin).take(old).zip(new.iter().copied().chain(std::iter::repeat(0))) {
        *place = byte;
    }
    Ok(fs::write(program, bytes)?)
}

fn untar(archive: &Path, into: &Path) -> Result<()> {
    fs::create_dir_all(into)?;
    let status = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(into).status().context("tar")?;
    ensure!(status.success(), "{} cannot be unpacked: {status}", archive.display());
    Ok(())
}

/// A file of such a name, somewhere below.
fn find(folder: &Path, is_it: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    let named = |path: &&PathBuf| path.is_file() && path.file_name().and_then(OsStr::to_str).is_some_and(is_it);
    let here = entries.iter().find(named).cloned();
    here.or_else(|| entries.iter().filter(|path| path.is_dir()).find_map(|path| find(path, is_it)))
}
