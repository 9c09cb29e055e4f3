"""An engine's environment: what programs and their libraries need, none of the router's secrets.

An engine runs code that others wrote, loads files that others made, and may print its environment.
So it gets variables by an allow-list; anything else it needs is written into `env:`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import msgspec

from turnout_rules.model import Target
from turnout_rules.variables import UnsetVariable, expand, is_secret
from turnout_sidecar.engines.base import CannotLaunch

_NAMES = frozenset(
    # The person and the system.
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TEMP", "TERM", "TMP", "TMPDIR", "TZ"}
    | {"USER", "VIRTUAL_ENV", "NO_PROXY", "no_proxy"}
    # Compilers (Triton and torch.compile build kernels), certificates of downloads.
    | {"CC", "CXX", "CPATH", "LIBRARY_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"}
    | {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"}
)
_PREFIXES = (
    *("CONDA_", "DYLD_", "LC_", "NIX_", "PYTHON", "XDG_"),
    # Cards and their libraries.
    *("CUDA_", "GPU_", "HIP_", "HSA_", "NCCL_", "NVIDIA_", "ONEAPI_", "ROCM_", "ROCR_", "SYCL_"),
    *("VK_", "ZE_"),
    # Threads and kernels.
    *("BLIS_", "GOMP_", "KMP_", "MKL_", "NUMEXPR_", "OMP_", "OPENBLAS_"),
    *("PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "TRITON_"),
    # Engines and where models lie.
    *("FLASHINFER_", "GGML_", "GLOO_", "HF_", "HUGGINGFACE_", "LLAMA_", "MODELSCOPE_", "RAY_"),
    *("SAFETENSORS_", "TOKENIZERS_", "TRANSFORMERS_", "VLLM_"),
)


def engine_environment(environ: Mapping[str, str], withheld: Set[str]) -> dict[str, str]:
    """What of the sidecar's own `environ` an engine gets.

    Never a name of `withheld` (the variables that hold our keys), nor one that says it is secret:
    `VLLM_API_KEY` would even lock us out of the engine.
    """
    return {
        name: value
        for name, value in environ.items()
        if (name in _NAMES or name.startswith(_PREFIXES))
        and name not in withheld
        and not is_secret(name)
    }


def with_own_variables(target: Target, environ: Mapping[str, str]) -> Target:
    """`target` with the references in its `env:` filled in; raises `CannotLaunch`.

    Here a person may hand on what the list withholds: `HF_TOKEN: ${HF_TOKEN}`.
    """
    model = target.model
    env = {}
    for name, value in model.env.items():
        try:
            env[name] = expand(value, environ)
        except UnsetVariable as unset:
            place = model.place
            where = f" ({place.file}:{place.line})" if place.file else ""
            raise CannotLaunch(
                f"{target.name}{where}: {name} in `env:` needs {unset}, which is not set; "
                f"export it before Turnout starts, or write ${{{unset}:-text}}"
            ) from None
    if env == model.env:
        return target
    return Target(target.name, target.upstream, msgspec.structs.replace(model, env=env))
