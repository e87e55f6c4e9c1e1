# gpusim with its compiled core:
#   docker build -t gpusim . && docker run --rm gpusim replay sample:inception_3a
#   docker run --rm -v "$PWD:/data" -w /data gpusim replay trace.json.gz
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels && useradd --create-home user
USER user
ENTRYPOINT ["gpusim"]
CMD ["--help"]
