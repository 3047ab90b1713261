//! What the parties keep, what is wrong with it, and its deletion.

use std::path::PathBuf;

use covey_client::{ClientConfig, ClientError, own_role};
use covey_messages::config::Peer;
use covey_messages::{DataSetList, Deleted, Hex};
use covey_node::{Holdings, Operator, PartyConfig, delete_own_data, delete_own_material, own_data_sets};
use covey_protocols::kind::ProtocolKind;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::client::{as_client, said};
use crate::error::Failure;
use crate::work::{attended, detached};

/// Whether the parties that the client's file `config` names would serve it, as JSON: `parties` as `status` returns them, `findings` about
/// them, and `programs` with a verdict and findings each.
#[pyfunction]
pub(crate) fn diagnose(py: Python<'_>, config: PathBuf) -> PyResult<String> {
    attended(py, None, move |_| {
        let config = ClientConfig::read(config)?;
        let covey_client::Diagnosis { parties, findings, programs } = covey_client::diagnose(&config);
        let parties: Vec<Value> =
            config.parties.iter().zip(parties).map(|(party, answer)| said(party, answer)).collect();
        Ok(json!({ "parties": parties, "findings": findings, "programs": programs }).to_string())
    })
}

/// What the daemon that the party's file `config` describes says about itself to whoever runs it, as JSON.
#[pyfunction]
pub(crate) fn own_status(py: Python<'_>, config: PathBuf) -> PyResult<String> {
    attended(py, None, move |_| {
        let party = PartyConfig::read(config)?;
        let own = as_client(&party, vec![party.as_peer()])?;
        Ok(serde_json::to_string(&covey_client::status(&own).remove(0)?)?)
    })
}

/// The state folder of the party whose file `config` is.
#[pyfunction]
pub(crate) fn state_folder(py: Python<'_>, config: PathBuf) -> PyResult<PathBuf> {
    detached(py, || Ok(PartyConfig::read(config)?.state))
}

/// Refuses a name that no data set may have.
#[pyfunction]
pub(crate) fn check_data_set_name(name: &str) -> PyResult<()> {
    Ok(covey_messages::check_data_set_name(name).map_err(Failure::new)?)
}

/// What lies in a party's state folder, as JSON: `usage` of each program, `stores` of correlated OTs, `data_sets`, and `problems` of what cannot be read.
#[pyfunction]
pub(crate) fn look(py: Python<'_>, state: PathBuf) -> PyResult<String> {
    detached(py, || {
        let (holdings, problems) = Holdings::look(&state)?;
        Ok(json!({ "usage": holdings.usage(), "stores": holdings.stocks(), "data_sets": holdings.data_sets(), "problems": problems })
            .to_string())
    })
}

/// Has the parties that the file `config` names delete the weights of a program, by hash, and the offline material for them. Returns JSON: of
/// each what it deleted, or the `error`.
#[pyfunction]
pub(crate) fn delete_weights(py: Python<'_>, config: PathBuf, program: String) -> PyResult<String> {
    attended(py, None, move |_| {
        let (config, program) = (ClientConfig::read(config)?, hash(&program)?);
        Ok(Value::Array(reports(&config, covey_client::delete_weights(&config, program))).to_string())
    })
}

/// Has the parties that the file `config` names delete their offline material: all, or the stored runs of one program, by hash. What this data
/// owner has as a party itself goes as well. Returns JSON as `delete_weights`.
#[pyfunction]
#[pyo3(signature = (config, program = None))]
pub(crate) fn delete_store(py: Python<'_>, config: PathBuf, program: Option<String>) -> PyResult<String> {
    attended(py, None, move |_| {
        let config = ClientConfig::read(config)?;
        let program = program.map(|program| hash(&program)).transpose()?;
        let mut reports = reports(&config, covey_client::delete_store(&config, program));
        if own_role(&config, ProtocolKind::TwoParty).is_some() {
            let own = delete_own_material(&config.state, program.as_ref());
            reports.push(report(&config.name, own.map_err(ClientError::Request)));
        }
        Ok(Value::Array(reports).to_string())
    })
}

/// Has the parties that the file `config` names delete this client's data set `name` of a program, by hash. Returns JSON as
/// `delete_weights`.
#[pyfunction]
pub(crate) fn delete_data(py: Python<'_>, config: PathBuf, program: String, name: String) -> PyResult<String> {
    attended(py, None, move |_| {
        let (config, program) = (ClientConfig::read(config)?, hash(&program)?);
        let mut reports = reports(&config, covey_client::delete_data(&config, program, &name));
        if own_role(&config, ProtocolKind::TwoParty).is_some() {
            let own = delete_own_data(&config.state, &program, &name);
            reports.push(report(&config.name, own.map_err(ClientError::Request)));
        }
        Ok(Value::Array(reports).to_string())
    })
}

/// The data sets that each party which the file `config` names keeps for this client, or a party for whoever runs it, as JSON: the
/// party's `name`, its `data_sets` and the `problems` of what it cannot read, or the `error`. Also what this data owner has as a party
/// itself.
#[pyfunction]
pub(crate) fn data_sets(py: Python<'_>, config: PathBuf, of_party: bool) -> PyResult<String> {
    attended(py, None, move |_| {
        let config = match of_party {
            true => {
                let party = PartyConfig::read(config)?;
                as_client(&party, vec![party.as_peer()])?
            }
            false => ClientConfig::read(config)?,
        };
        let told = |(party, answer): (&Peer, Result<DataSetList, ClientError>)| match answer {
            Ok(told) => json!({ "name": party.name, "data_sets": told.data_sets, "problems": told.problems }),
            Err(error) => json!({ "name": party.name, "error": Failure::new(error).into_line() }),
        };
        let mut all: Vec<Value> = config.parties.iter().zip(covey_client::data_sets(&config)).map(told).collect();
        if !of_party && own_role(&config, ProtocolKind::TwoParty).is_some() {
            let (data_sets, problems) = own_data_sets(&config.state);
            all.push(json!({ "name": config.name, "data_sets": data_sets, "problems": problems }));
        }
        Ok(Value::Array(all).to_string())
    })
}

/// Deletes the data set `name` of a program in the state folder of a party that does not serve, whoever shared it. Returns what was
/// deleted as JSON.
#[pyfunction]
pub(crate) fn delete_data_in(py: Python<'_>, state: PathBuf, program: String, name: String) -> PyResult<String> {
    detached(py, || {
        let deleted = Operator::open(&state)?.delete_data(&hash(&program)?, &name);
        Ok(serde_json::to_string(&deleted.map_err(Failure::new)?)?)
    })
}

/// Deletes in the state folder of a party that does not serve the damaged batches, checkpoints and data sets of all owners. Returns what was
/// deleted as JSON.
#[pyfunction]
pub(crate) fn delete_damaged_in(py: Python<'_>, state: PathBuf) -> PyResult<String> {
    detached(py, || {
        let deleted = Operator::open(&state)?.delete_damaged();
        Ok(serde_json::to_string(&deleted.map_err(Failure::new)?)?)
    })
}

/// Deletes in the state folder of a party that does not serve: the `weights` of a program and the offline material for them, or the stored
/// runs of a program, or all offline material. Returns what was deleted as JSON.
#[pyfunction]
#[pyo3(signature = (state, weights, program = None))]
pub(crate) fn delete_in(py: Python<'_>, state: PathBuf, weights: bool, program: Option<String>) -> PyResult<String> {
    detached(py, || {
        let operator = Operator::open(&state)?;
        let program = program.map(|program| hash(&program)).transpose()?;
        let deleted = match (weights, program) {
            (true, Some(program)) => operator.delete_weights(&program),
            (true, None) => Err("which program's weights?".into()),
            (false, program) => operator.delete_store(program.as_ref()),
        };
        Ok(serde_json::to_string(&deleted.map_err(Failure::new)?)?)
    })
}

fn hash(text: &str) -> Result<Hex<32>, Failure> {
    text.parse().map_err(|problem| Failure::new(format!("'{text}' is no program's hash: {problem}")))
}

fn reports(config: &ClientConfig, answers: Vec<Result<Deleted, ClientError>>) -> Vec<Value> {
    config.parties.iter().zip(answers).map(|(party, answer)| report(&party.name, answer)).collect()
}

fn report(name: &str, answer: Result<Deleted, ClientError>) -> Value {
    match answer {
        Ok(Deleted { weights, runs, ots, data_sets, damaged }) => {
            json!({
                "name": name, "weights": weights, "runs": runs, "ots": ots, "data_sets": data_sets, "damaged": damaged
            })
        }
        Err(error) => json!({ "name": name, "error": Failure::new(error).into_line() }),
    }
}
