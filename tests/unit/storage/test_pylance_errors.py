"""Conversion of pylance's original error texts to errors of the spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async.errors import PHRASES
from lance_ns_async.model import Table, TableId
from lance_ns_async.storage.pylance_errors import error, translate_errors

pytestmark = pytest.mark.environment
TABLE = Table(TableId(["a", "t"]), "s3://b/t")
RUST = "/home/runner/work/lance/lance/rust/lance/src"
S3 = "LanceError(IO): Generic S3 error: Error performing GET http://s3/b?list-type=2 in 1ms - "
NO_REGION = OSError(f"LanceError(IO): Generic S3 error: Failed to resolve region for bucket 'b', {RUST}/aws.rs:342:13")
NO_KEYS = ValueError(
    "LanceError(IO): Failed to get AWS credentials: CredentialsNotLoaded(CredentialsNotLoaded { source"
)
STATUS = f"{S3}Server returned non-2xx status code:"
MEANINGS: Mapping[type[err.LanceNamespaceError], Sequence[Exception]] = {
    err.TableVersionNotFoundError: [
        ValueError(f"Dataset at path b/t/_versions/9.manifest was not found: Not found, {RUST}/dataset.rs:7:4"),
        ValueError("Version not found error: version main:99 does not exist"),
        OSError(f"Not found: b/t/_versions/9.manifest, {RUST}/io/commit.rs:1:1"),
        OSError(f"Not found: b/data/t.lance/_versions/9.manifest, {RUST}/io/commit.rs:1:1"),
        OSError("Namespace error: Table version not found: Table version not found: a$t (version 30)"),
    ],
    err.TableBranchNotFoundError: [
        ValueError(f"Not found: b/t/tree/br/_versions, {RUST}/io/commit.rs:653:26"),
        ValueError("Ref not found error: Branch zz does not exist"),
        ValueError(f"Not found: b/data/t.lance/tree/br/_versions, {RUST}/io/commit.rs:653:26"),
    ],
    err.InvalidTableStateError: [
        OSError(f"Generic N/A error: Not found: b/t/data/1f.lance, {RUST}/object_reader.rs:1:1"),
        OSError(f"Not found: b/t.lance/_deletions/0-1-7.arrow, {RUST}/io.rs:1:1"),
        OSError('Ref conflict error: Branch br is referenced by tags [("tb", 2)], can not delete'),
        OSError(f"Refusing to drop b/t, {RUST}/dataset.rs:7:4"),
    ],
    err.TableNotFoundError: [
        ValueError(
            f"Dataset at path b/data/t.lance was not found: Not found: b/data/t.lance/_versions, {RUST}/c.rs:1:1"
        ),
        ValueError(f"Dataset at path b/t was not found: Not found, {RUST}/builder.rs:9:2"),
    ],
    err.UnsupportedOperationError: [
        RuntimeError("Not supported: Nested column references in update"),
        OSError("Namespace error: Unsupported: Not supported: branch 'b', src/namespace.rs:1569:18"),
    ],
    err.InvalidInputError: [
        NO_REGION,
        OSError(f"{STATUS} 404 Not Found: <Error><Code>NoSuchBucket</Code></Error>"),
        OSError("LanceError(IO): Unable to open file /t/_refs/tags/x: File name too long"),
        OSError("LanceError(Index): multivector type supports only cosine distance"),
        OSError("LanceError(Index): num_bits 3 not supported"),
        RuntimeError("LanceError(Arrow): Cast error: Can't cast value 128 to type Int8"),
        IndexError("list index out of range"),
        OverflowError("int too big to convert"),
        ValueError(f"Invalid user input: Error parsing statement: SELECT (((, {RUST}/sql.rs:9:2"),
        OSError(f"Invalid user input: Column id already exists in the dataset, {RUST}/s.rs:2:5"),
        OSError("Ref is invalid: Ref cannot be empty"),
        ValueError(f"can't set tokenizer language to zz, {RUST}/tokenizer.rs:839:24"),
        ValueError("No object store provider found for scheme: 'x'"),
        TypeError("Query column id must be a vector. Got int64."),
        ValueError("Query vector size 3 does not match index column size 2"),
        NotImplementedError("Only ['IVF_FLAT'] index types supported. Got XX"),
    ],
    err.TableTagNotFoundError: [
        ValueError("Ref not found error: tag nope does not exist"),
        ValueError("Ref not found: Ref not found error: tag zz does not exist"),
    ],
    err.TableTagAlreadyExistsError: [ValueError("Ref conflict error: tag a already exists")],
    err.TableAlreadyExistsError: [OSError(f"Dataset already exists: /b/t, {RUST}/dataset/write/insert.rs:333:28")],
    err.TableIndexAlreadyExistsError: [
        RuntimeError(f"LanceError(Index): Index name 'v_idx' already exists, please, {RUST}/create.rs:393:24")
    ],
    err.TableIndexNotFoundError: [
        RuntimeError(f"Lance index not found: name=none, {RUST}/index.rs:2545:24"),
        KeyError('Index "none" not found'),
    ],
    err.TableColumnNotFoundError: [
        OSError(f"Invalid user input: Schema error: No field named zz. Valid fields are id., {RUST}/s.rs:8:3"),
        ValueError("Invalid user input: Column 'zz' does not exist in dataset schema: Schema { fields: [Field {"),
        ValueError("Column zz does not exist in the dataset"),
        ValueError("Embedding column zz is not in the dataset"),
        KeyError("zz not found in schema"),
        OSError("Field 'zz' not found.\nAvailable fields: ['id', 's']"),
        ValueError(f"LanceError(Index): FTS field path 'zz' does not exist in the dataset schema, {RUST}/i.rs:1:1"),
    ],
    err.TableSchemaValidationError: [
        OSError("Append with different schema: fields did not match, missing=[]"),
        OSError(f"LanceError(Schema): Duplicate field name, {RUST}/schema.rs:2:3"),
    ],
    err.ConcurrentModificationError: [
        OSError(f"Retryable commit conflict for version 23: This CreateIndex was preempted, {RUST}/c.rs:1:1"),
        OSError(f"Incompatible transaction: This Append is incompatible with Overwrite, {RUST}/c.rs:1:1"),
    ],
    err.UnauthenticatedError: [
        NO_KEYS,
        ValueError(f"{STATUS} 403 Forbidden: <Error><Code>ExpiredToken</Code></Error>"),
        ValueError(f"{STATUS} 403 Forbidden: <Code>InvalidAccessKeyId</Code>"),
        ValueError(f"{STATUS} 401 Unauthorized: "),
    ],
    err.PermissionDeniedError: [
        ValueError(f"{STATUS} 403 Forbidden: <Code>AccessDenied</Code>"),
        OSError(f"LanceError(IO): Permission denied (os error 13), {RUST}/local.rs:1:2"),
    ],
    err.ThrottlingError: [
        ValueError(f"{STATUS} 503 Service Unavailable: <Code>SlowDown</Code>"),
        ValueError(f"{STATUS} 429 Too Many Requests: "),
        OSError("Namespace error: Throttled: a$t (describe_table: HTTP 429)"),
    ],
    err.ServiceUnavailableError: [
        ValueError(f"{STATUS} 503 Service Unavailable: "),
        ValueError(f"{S3}HTTP error: error sending request, {RUST}/object_store.rs:15:2"),
    ],
    err.InternalError: [
        ValueError(f"{STATUS} 500 Internal Server Error: , {RUST}/object_store.rs:15:2"),
        RuntimeError("task panicked"),
        OSError(f"LanceError(IO): Encountered corrupt file, {RUST}/io.rs:1:2"),
    ],
}


@pytest.mark.parametrize(("raised", "meant"), [(it, meant) for meant, many in MEANINGS.items() for it in many])
def test_a_fault_becomes_the_error_it_means(raised: Exception, meant: type[err.LanceNamespaceError]) -> None:
    result = error(TABLE, raised)
    assert type(result) is meant and str(result).startswith(f"{PHRASES[meant]}: ")
    assert ".rs:" not in str(result) and "\n" not in str(result) and "Schema {" not in str(result)


def test_texts_are_short() -> None:
    result = error(TABLE, OSError("Namespace error: Table not found: Table not found: a$t (gone)"))
    assert str(result) == "Table not found: a$t (gone)"
    assert len(str(error(TABLE, OSError("x" * 10_000)))) < 900


def test_missing_options_of_s3_are_named() -> None:
    assert "the region of bucket 'b' is unknown; set storage.aws_region or AWS_REGION" in str(error(TABLE, NO_REGION))
    assert str(error(TABLE, NO_KEYS)).endswith(", or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)")


def test_a_date_that_is_a_text_has_a_remedy(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))}), str(tmp_path / "t"))
    with pytest.raises(err.InvalidInputError, match=r"at > '2025-01-01': .*write timestamp '2025-01-01'"):
        with translate_errors(TABLE):
            dataset.count_rows("at > '2025-01-01'")
    assert dataset.count_rows("at > timestamp '2025-01-01'") == 0


def test_our_own_errors_and_those_of_others_pass() -> None:
    ours = err.InvalidInputError("k 0: ...")
    with pytest.raises(err.InvalidInputError) as raised, translate_errors(TABLE):
        raise ours
    assert raised.value is ours
    with pytest.raises(ZeroDivisionError), translate_errors(TABLE):
        _ = 1 / 0


class PanicException(BaseException):
    """Like that of pyo3: not an Exception, and of a module that cannot be imported."""


def test_panics_are_errors() -> None:
    with (
        pytest.raises(err.InternalError, match=r"Lance panicked: called `Result::unwrap\(\)`"),
        translate_errors(TABLE),
    ):
        raise PanicException("called `Result::unwrap()` on an `Err` value: InvalidHeaderValue")
    with pytest.raises(KeyboardInterrupt), translate_errors(TABLE):
        raise KeyboardInterrupt
    result = error(TABLE, OSError("Error performing GET http://me:hush@s3.example.com/b in 1ms"))
    assert "http://s3.example.com/b" in str(result) and "hush" not in str(result)
    result = error(TABLE, TypeError("column v must be int", ", float", ", or string"))
    assert "column v must be int , float , or string" in str(result)
