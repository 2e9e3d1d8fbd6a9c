//! Redis 8.0 beside the machine's own redis-server, out of the image that clusters of real nodes run: an upgrade here is one of programs.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt as _,
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
    let program = folder.join("bin/redis-server");
    fs::create_dir_all(folder.join("bin"))?;
    let text = format!(
        "#!/bin/sh\nexec {} --argv0 redis-server --library-path {} {} \"$@\"\n",
        loader.display(),
        libraries.display(),
        server.display()
    );
    fs::write(&program, text)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
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
