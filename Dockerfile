# Serves a model that crosstask trained or exported:
#
#     docker build -t crosstask .
#     docker run --rm -p 8000:8000 -v "$PWD/model:/model:ro" crosstask --threads 4
#
# docs/deploy.md has more.

FROM python:3.11-slim AS build

# Where pip finds a build of torch for CPUs; the usual one brings gigabytes for GPUs along.
ARG PIP_EXTRA_INDEX_URL
# Optional packages: onnx for graphs, lora for runs with low-rank updates that were not exported.
ARG EXTRAS=onnx

RUN python -m venv /opt/crosstask
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN /opt/crosstask/bin/pip install --no-cache-dir --constraint constraints.txt ".[${EXTRAS}]"

FROM python:3.11-slim

# onnxruntime and torch use threads of OpenMP.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --no-create-home --uid 10001 crosstask
COPY --from=build /opt/crosstask /opt/crosstask

# Nothing is fetched, and nothing is written but below /tmp.
ENV PATH=/opt/crosstask/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HF_HUB_OFFLINE=1 \
    HF_HOME=/tmp/huggingface \
    CROSSTASK_CACHE=/tmp/crosstask

USER crosstask
WORKDIR /tmp
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]

ENTRYPOINT ["crosstask", "serve", "/model", "--host", "0.0.0.0", "--port", "8000"]
