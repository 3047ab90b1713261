//! `party.toml`, `owner.toml` and `client.toml`: each input is read as both kinds, beside a sound key file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::OnceLock;

use covey_client::ClientConfig;
use covey_node::PartyConfig;
use serde_json::Value;

use super::{Run, Target, line, pair};
use crate::corpus::Corpus;
use crate::mutate::{damage, damage_json, damage_text};
use crate::rng::Rng;

pub const CONFIG: Target = Target { name: "config", mutate, run: Run::Here(run), seed, file: true };

fn mutate(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    let read = |bytes: &[u8]| toml::from_str::<Value>(std::str::from_utf8(bytes).ok()?).ok();
    let (Some(mut value), Some(donor)) = (read(input), read(other)) else { return damage(rng, input, other) };
    match rng.below(8) {
        0 => damage(rng, input, other),
        1 => damage_text(rng, &String::from_utf8_lossy(input)).into_bytes(),
        _ => {
            damage_json(rng, &mut value, &donor);
            // TOML has no null, and integers of 63 bits only.
            toml::to_string(&value).unwrap_or_else(|_| damage_text(rng, &String::from_utf8_lossy(input))).into_bytes()
        }
    }
}

fn run(folder: &Path, bytes: &[u8]) -> Result<(), String> {
    static KEY: OnceLock<String> = OnceLock::new();
    let key = KEY.get_or_init(|| super::certificate::key_file("fuzz").unwrap_or_default());
    let (path, beside) = (folder.join("file.toml"), folder.join("key.pem"));
    if !beside.exists() {
        line(fs::write(&beside, key))?;
        line(fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)))?;
    }
    line(fs::write(&path, bytes))?;
    let party = line(PartyConfig::read(&path)).map(drop);
    let client = line(ClientConfig::read(&path)).map(drop);
    match (party, client) {
        (Ok(()), _) | (_, Ok(())) => Ok(()),
        // The kind that it comes closer to.
        (Err(party), Err(client)) => Err(if party.contains("missing field `party`") { client } else { party }),
    }
}

fn seed() -> Vec<(String, Vec<u8>)> {
    let key = |digit: &str| format!("covey:{}", digit.repeat(64));
    let peer = |table: &str, name: &str, digit: &str| {
        format!("[[{table}]]\nname = \"{name}\"\naddress = \"{name}.example:7100\"\nfingerprint = \"{}\"\n", key(digit))
    };
    let party = format!(
        "[party]\nname = \"alpha\"\nlisten = \"127.0.0.1:7100\"\nkey = \"key.pem\"\nstate = \"state\"\ntimeout = 10\n{}{}\
         [[client]]\nname = \"data\"\nfingerprint = \"{}\"\nmay = [\"infer\", \"fill-store\"]\nqueries = 1000\nround_bits = 4\n",
        peer("peer", "beta", "1"),
        peer("peer", "gamma", "2"),
        key("3"),
    );
    let client = format!(
        "[client]\nname = \"data\"\nkey = \"key.pem\"\ntimeout = 2.5\nstate = \"state\"\n{}{}{}[network]\nlatency_ms = 20\n\
         bandwidth_mbit = 100\n[links]\nround_trip_ms = 70\nbandwidth_mbit = 100\n",
        peer("party", "alpha", "0"),
        peer("party", "beta", "1"),
        peer("party", "gamma", "2"),
    );
    vec![("party.toml".into(), party.into_bytes()), ("client.toml".into(), client.into_bytes())]
}
