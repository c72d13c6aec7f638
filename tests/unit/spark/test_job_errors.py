"""Errors that tasks of Spark raised, from the text of the job's error."""

from __future__ import annotations

from lance_namespace.errors import InternalError, PermissionDeniedError

from lance_ns_async.spark.tasks import cause_of, rebuild, task_error


def test_errors_of_tasks_keep_class_message_and_notes() -> None:
    job_error = RuntimeError(
        "Traceback ...\n  File x, line 1\n"
        "lance_namespace.errors.PermissionDeniedError: Permission denied: t (at s3://b/t: no)\n\n\tat org.apache"
    )
    job_error.add_note("and this is left")
    error = task_error(job_error)
    assert isinstance(error, PermissionDeniedError) and str(error) == "Permission denied: t (at s3://b/t: no)"
    assert error.__notes__ == ["and this is left"]


def test_other_errors_of_jobs_have_no_cause() -> None:
    for text in ("ZeroDivisionError: division by zero", "lance_namespace.errors.json: no class of errors"):
        assert cause_of(RuntimeError(text)) is None


def test_unsuitable_python_is_an_import_error() -> None:
    error = cause_of(RuntimeError("ModuleNotFoundError: No module named 'lance_ns_async'"))
    assert isinstance(error, ImportError) and "PYSPARK_PYTHON" in str(error)


def test_errors_are_rebuilt_by_name() -> None:
    assert type(rebuild("PermissionDeniedError", "no")) is PermissionDeniedError
    assert type(rebuild("json", "no")) is InternalError
