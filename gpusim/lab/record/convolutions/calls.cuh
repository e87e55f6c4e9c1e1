// Library calls of a convolutional network: convolutions by algorithm, and the layers between them.
//
// A call owns its tensors, filled with random numbers, and is run again and again with run(). One line of a list of
// calls is
//   op direction batch channels height width out_channels filter_height filter_width padding_height padding_width
//   stride algorithm math
// direction: fwd, bwd_data, bwd_filter of convolutions, fwd and bwd of the others. A padding that a layer does not have
// is 0, a size 1. A fully connected layer is a convolution of one pixel.
#pragma once
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "check.cuh"

struct Call {
    std::string op, direction;
    int batch, channels, height, width, out_channels, filter_height, filter_width, padding_height, padding_width, stride;
    std::string algorithm, math;

    int out_height() const { return (height + 2 * padding_height - filter_height) / stride + 1; }
    int out_width() const { return (width + 2 * padding_width - filter_width) / stride + 1; }
    bool backward() const { return direction != "fwd"; }
};

inline std::vector<Call> read_calls(const char* path) {
    std::ifstream file(path);
    if (!file) fail("calls", "the list cannot be read", path, 0);
    std::vector<Call> calls;
    std::string line;
    while (getline(file, line)) {
        std::istringstream fields(line);
        Call c;
        fields >> c.op >> c.direction >> c.batch >> c.channels >> c.height >> c.width >> c.out_channels >>
            c.filter_height >> c.filter_width >> c.padding_height >> c.padding_width >> c.stride >> c.algorithm >> c.math;
        if (fields.fail()) fail("calls", "a line is not a call", path, int(calls.size()) + 1);
        calls.push_back(c);
    }
    return calls;
}

// Why a call cannot run: the library refuses it, or it needs more memory than there is.
struct Unsupported {
    std::string why;
    size_t workspace_bytes = 0;
};

inline void require_ran(bool all) {
    if (!all) throw Unsupported{"a call fails on these SMs"};
}

inline void require(cudnnStatus_t status, const char* why) {
    if (status == CUDNN_STATUS_SUCCESS) return;
    cudaGetLastError();
    throw Unsupported{why};
}

__global__ void fill(float* values, size_t count, unsigned seed) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) {
        unsigned v = unsigned(i) * 2654435761u + seed;
        v ^= v >> 15;
        v *= 2246822519u;
        v ^= v >> 13;
        values[i] = (v & 0xffff) / 32768.f - 1.f;  // -1 to 1
    }
}

// Device memory of random numbers.
class Buffer {
  public:
    explicit Buffer(size_t count, unsigned seed = 1) : count_(count) {
        size_t free_bytes, all_bytes;
        CHECK(cudaMemGetInfo(&free_bytes, &all_bytes));
        if (bytes() > free_bytes * 9 / 10) throw Unsupported{"memory", bytes()};
        if (cudaMalloc(&data_, bytes()) != cudaSuccess) {
            cudaGetLastError();
            throw Unsupported{"memory", bytes()};
        }
        fill<<<1024, 256>>>(data_, count, seed);
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() { cudaFree(data_); }
    float* data() const { return data_; }
    size_t bytes() const { return count_ * sizeof(float); }

  private:
    size_t count_;
    float* data_ = nullptr;
};

class Tensor {
  public:
    Tensor(int n, int c, int h, int w, cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW) {
        CHECK(cudnnCreateTensorDescriptor(&descriptor_));
        CHECK(cudnnSetTensor4dDescriptor(descriptor_, format, CUDNN_DATA_FLOAT, n, c, h, w));
    }
    Tensor(const Tensor&) = delete;
    ~Tensor() { cudnnDestroyTensorDescriptor(descriptor_); }
    operator cudnnTensorDescriptor_t() const { return descriptor_; }

  private:
    cudnnTensorDescriptor_t descriptor_;
};

inline const float ONE = 1.f, ZERO = 0.f;

class Work;

// The library's state for one stream.
class Library {
  public:
    Library() { CHECK(cudnnCreate(&dnn)); }
    Library(const Library&) = delete;
    ~Library() { cudnnDestroy(dnn); }
    void on(cudaStream_t stream) { CHECK(cudnnSetStream(dnn, stream)); }
    // Puts a call on the stream. One that ran before may fail there: the GPU refuses a kernel in clusters on SMs that
    // hold none. Streams may wait for what comes after it, so `all_ran` tells, once they have ended.
    void enqueue(Work& work);
    bool all_ran() { return !std::exchange(failed_, false); }  // since it was last asked
    cudnnHandle_t dnn;

  private:
    bool failed_ = false;
};

// A call that is ready to run.
class Work {
  public:
    explicit Work(const Call& call) : call(call) {}
    virtual ~Work() = default;
    virtual cudnnStatus_t run(Library& on) = 0;
    const Call call;
    size_t workspace_bytes = 0, tensor_bytes = 0;
    double flop = 0;

  protected:
    size_t in_elements() const { return size_t(call.batch) * call.channels * call.height * call.width; }
    size_t out_elements() const {
        return size_t(call.batch) * call.out_channels * call.out_height() * call.out_width();
    }
};

inline void Library::enqueue(Work& work) {
    if (work.run(*this) == CUDNN_STATUS_SUCCESS) return;
    cudaGetLastError();
    failed_ = true;
}

class Convolution : public Work {
  public:
    Convolution(const Call& c, Library& on)
        : Work(c), x_(c.batch, c.channels, c.height, c.width), y_(c.batch, c.out_channels, c.out_height(), c.out_width()) {
        CHECK(cudnnCreateFilterDescriptor(&w_));
        CHECK(cudnnCreateConvolutionDescriptor(&convolution_));
        CHECK(cudnnSetFilter4dDescriptor(w_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, c.out_channels, c.channels,
                                         c.filter_height, c.filter_width));
        CHECK(cudnnSetConvolution2dDescriptor(convolution_, c.padding_height, c.padding_width, c.stride, c.stride, 1, 1,
                                              CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
        CHECK(cudnnSetConvolutionMathType(convolution_, c.math == "FMA" ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH));
        const size_t filter = size_t(c.out_channels) * c.channels * c.filter_height * c.filter_width;
        flop = 2.0 * out_elements() * c.channels * c.filter_height * c.filter_width;
        tensor_bytes = sizeof(float) * (in_elements() + filter + out_elements());
        algorithm_ = algorithm_number(c);
        require(workspace_size(on.dnn), "unsupported");
        try {
            for (size_t count : {in_elements(), filter, out_elements()})
                buffers_.push_back(std::make_unique<Buffer>(count, unsigned(buffers_.size() + 1)));
            if (workspace_bytes) workspace_ = std::make_unique<Buffer>((workspace_bytes + 3) / 4);
        } catch (Unsupported& unsupported) {
            unsupported.workspace_bytes = workspace_bytes;
            throw;
        }
    }
    ~Convolution() override {
        cudnnDestroyFilterDescriptor(w_);
        cudnnDestroyConvolutionDescriptor(convolution_);
    }
    cudnnStatus_t run(Library& on) override {
        return run(on, buffers_[0]->data(), buffers_[1]->data(), buffers_[2]->data(),
                   workspace_ ? workspace_->data() : nullptr, ZERO);
    }
    // With tensors and a workspace of others. beta: how much of what the output holds is added to it.
    cudnnStatus_t run(Library& on, float* x, float* w, float* y, void* space, const float& beta) {
        if (call.direction == "fwd")
            return cudnnConvolutionForward(on.dnn, &ONE, x_, x, w_, w, convolution_,
                                           cudnnConvolutionFwdAlgo_t(algorithm_), space, workspace_bytes, &beta, y_, y);
        if (call.direction == "bwd_data")
            return cudnnConvolutionBackwardData(on.dnn, &ONE, w_, w, y_, y, convolution_,
                                                cudnnConvolutionBwdDataAlgo_t(algorithm_), space, workspace_bytes, &beta,
                                                x_, x);
        return cudnnConvolutionBackwardFilter(on.dnn, &ONE, x_, x, y_, y, convolution_,
                                              cudnnConvolutionBwdFilterAlgo_t(algorithm_), space, workspace_bytes, &beta,
                                              w_, w);
    }

  private:
    static int algorithm_number(const Call& c) {
        static const std::map<std::string, std::map<std::string, int>> numbers = {
            {"fwd",
             {{"IMPLICIT_GEMM", CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM},
              {"IMPLICIT_PRECOMP_GEMM", CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM},
              {"GEMM", CUDNN_CONVOLUTION_FWD_ALGO_GEMM},
              {"DIRECT", CUDNN_CONVOLUTION_FWD_ALGO_DIRECT},
              {"FFT", CUDNN_CONVOLUTION_FWD_ALGO_FFT},
              {"FFT_TILING", CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING},
              {"WINOGRAD", CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD},
              {"WINOGRAD_NONFUSED", CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED}}},
            {"bwd_data",
             {{"ALGO_0", CUDNN_CONVOLUTION_BWD_DATA_ALGO_0},
              {"ALGO_1", CUDNN_CONVOLUTION_BWD_DATA_ALGO_1},
              {"FFT", CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT},
              {"FFT_TILING", CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING},
              {"WINOGRAD", CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD},
              {"WINOGRAD_NONFUSED", CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED}}},
            {"bwd_filter",
             {{"ALGO_0", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0},
              {"ALGO_1", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1},
              {"FFT", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT},
              {"ALGO_3", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3},
              {"WINOGRAD", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD},
              {"WINOGRAD_NONFUSED", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED},
              {"FFT_TILING", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING}}}};
        const auto direction = numbers.find(c.direction);
        if (direction == numbers.end() || !direction->second.count(c.algorithm)) throw Unsupported{"unknown"};
        return direction->second.at(c.algorithm);
    }
    cudnnStatus_t workspace_size(cudnnHandle_t dnn) {
        if (call.direction == "fwd")
            return cudnnGetConvolutionForwardWorkspaceSize(dnn, x_, w_, convolution_, y_,
                                                           cudnnConvolutionFwdAlgo_t(algorithm_), &workspace_bytes);
        if (call.direction == "bwd_data")
            return cudnnGetConvolutionBackwardDataWorkspaceSize(
                dnn, w_, y_, convolution_, x_, cudnnConvolutionBwdDataAlgo_t(algorithm_), &workspace_bytes);
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(
            dnn, x_, y_, convolution_, w_, cudnnConvolutionBwdFilterAlgo_t(algorithm_), &workspace_bytes);
    }
    Tensor x_, y_;
    cudnnFilterDescriptor_t w_;
    cudnnConvolutionDescriptor_t convolution_;
    int algorithm_;
    std::vector<std::unique_ptr<Buffer>> buffers_;
    std::unique_ptr<Buffer> workspace_;
};

// A layer with its input x and output y, and where it runs backward their gradients dx and dy.
class Layer : public Work {
  public:
    explicit Layer(const Call& c)
        : Work(c), x_shape(c.batch, c.channels, c.height, c.width),
          y_shape(c.batch, c.out_channels, c.out_height(), c.out_width()), x(in_elements(), 1), y(out_elements(), 2) {
        if (c.backward()) {
            dx = std::make_unique<Buffer>(in_elements(), 3);
            dy = std::make_unique<Buffer>(out_elements(), 4);
        }
        tensor_bytes = (x.bytes() + y.bytes()) * (c.backward() ? 2 : 1);
        flop = double(out_elements()) * c.filter_height * c.filter_width;
    }
    cudnnStatus_t run(Library& on) override { return call.backward() ? backward(on.dnn) : forward(on.dnn); }
    virtual cudnnStatus_t forward(cudnnHandle_t dnn) = 0;
    virtual cudnnStatus_t backward(cudnnHandle_t) { return CUDNN_STATUS_NOT_SUPPORTED; }

    Tensor x_shape, y_shape;
    Buffer x, y;
    std::unique_ptr<Buffer> dx, dy;
};

class Pooling : public Layer {
  public:
    explicit Pooling(const Call& c) : Layer(c) {
        const auto mode = c.algorithm == "MAX_POOL" ? CUDNN_POOLING_MAX : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING;
        CHECK(cudnnCreatePoolingDescriptor(&pooling_));
        CHECK(cudnnSetPooling2dDescriptor(pooling_, mode, CUDNN_NOT_PROPAGATE_NAN, c.filter_height, c.filter_width,
                                          c.padding_height, c.padding_width, c.stride, c.stride));
    }
    ~Pooling() override { cudnnDestroyPoolingDescriptor(pooling_); }
    cudnnStatus_t forward(cudnnHandle_t dnn) override {
        return cudnnPoolingForward(dnn, pooling_, &ONE, x_shape, x.data(), &ZERO, y_shape, y.data());
    }
    cudnnStatus_t backward(cudnnHandle_t dnn) override {
        return cudnnPoolingBackward(dnn, pooling_, &ONE, y_shape, y.data(), y_shape, dy->data(), x_shape, x.data(), &ZERO,
                                    x_shape, dx->data());
    }

  private:
    cudnnPoolingDescriptor_t pooling_;
};

class ReLU : public Layer {
  public:
    explicit ReLU(const Call& c) : Layer(c) {
        CHECK(cudnnCreateActivationDescriptor(&activation_));
        CHECK(cudnnSetActivationDescriptor(activation_, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0));
    }
    ~ReLU() override { cudnnDestroyActivationDescriptor(activation_); }
    cudnnStatus_t forward(cudnnHandle_t dnn) override {
        return cudnnActivationForward(dnn, activation_, &ONE, x_shape, x.data(), &ZERO, y_shape, y.data());
    }
    cudnnStatus_t backward(cudnnHandle_t dnn) override {
        return cudnnActivationBackward(dnn, activation_, &ONE, y_shape, y.data(), y_shape, dy->data(), x_shape, x.data(),
                                       &ZERO, x_shape, dx->data());
    }

  private:
    cudnnActivationDescriptor_t activation_;
};

// Local response normalisation over 5 channels.
class ResponseNormalisation : public Layer {
  public:
    explicit ResponseNormalisation(const Call& c) : Layer(c) {
        CHECK(cudnnCreateLRNDescriptor(&lrn_));
        CHECK(cudnnSetLRNDescriptor(lrn_, 5, 1e-4, 0.75, 2));
    }
    ~ResponseNormalisation() override { cudnnDestroyLRNDescriptor(lrn_); }
    cudnnStatus_t forward(cudnnHandle_t dnn) override {
        return cudnnLRNCrossChannelForward(dnn, lrn_, CUDNN_LRN_CROSS_CHANNEL_DIM1, &ONE, x_shape, x.data(), &ZERO,
                                           y_shape, y.data());
    }
    cudnnStatus_t backward(cudnnHandle_t dnn) override {
        return cudnnLRNCrossChannelBackward(dnn, lrn_, CUDNN_LRN_CROSS_CHANNEL_DIM1, &ONE, y_shape, y.data(), y_shape,
                                            dy->data(), x_shape, x.data(), &ZERO, x_shape, dx->data());
    }

  private:
    cudnnLRNDescriptor_t lrn_;
};

__global__ void to_positive(float* values, size_t count) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
        values[i] = 1.f + values[i] * values[i];
}

// Batch normalisation as in training, with the statistics of the batch, or with those given (BATCH_NORM_INFERENCE).
class BatchNormalisation : public Layer {
  public:
    explicit BatchNormalisation(const Call& c) : Layer(c), per_channel_(1, c.channels, 1, 1) {
        for (unsigned seed = 5; seed < 13; ++seed) {
            channels_.push_back(std::make_unique<Buffer>(c.channels, seed));
            to_positive<<<16, 256>>>(channels_.back()->data(), c.channels);
        }
    }
    cudnnStatus_t forward(cudnnHandle_t dnn) override {
        if (call.algorithm == "BATCH_NORM_INFERENCE")
            return cudnnBatchNormalizationForwardInference(dnn, CUDNN_BATCHNORM_SPATIAL, &ONE, &ZERO, x_shape, x.data(),
                                                           y_shape, y.data(), per_channel_, at(0), at(1), at(2), at(3),
                                                           1e-5);
        return cudnnBatchNormalizationForwardTraining(dnn, CUDNN_BATCHNORM_SPATIAL, &ONE, &ZERO, x_shape, x.data(), y_shape,
                                                      y.data(), per_channel_, at(0), at(1), 0.1, at(2), at(3), 1e-5, at(4),
                                                      at(5));
    }
    cudnnStatus_t backward(cudnnHandle_t dnn) override {
        return cudnnBatchNormalizationBackward(dnn, CUDNN_BATCHNORM_SPATIAL, &ONE, &ZERO, &ONE, &ZERO, x_shape, x.data(),
                                               y_shape, dy->data(), x_shape, dx->data(), per_channel_, at(0), at(6), at(7),
                                               1e-5, at(4), at(5));
    }

  private:
    // scale, shift, running mean and variance, saved mean and inverse deviation, gradients of scale and shift
    float* at(int i) const { return channels_[i]->data(); }
    Tensor per_channel_;
    std::vector<std::unique_ptr<Buffer>> channels_;
};

// One number a channel added to all of it, in place; backward, the gradient of those numbers.
class Bias : public Layer {
  public:
    explicit Bias(const Call& c) : Layer(c), per_channel_(1, c.channels, 1, 1), bias_(c.channels, 5) {
        tensor_bytes = x.bytes();
    }
    cudnnStatus_t forward(cudnnHandle_t dnn) override {
        return cudnnAddTensor(dnn, &ONE, per_channel_, bias_.data(), &ONE, x_shape, x.data());
    }
    cudnnStatus_t backward(cudnnHandle_t dnn) override {
        return cudnnConvolutionBackwardBias(dnn, &ONE, y_shape, dy->data(), &ZERO, per_channel_, bias_.data());
    }

  private:
    Tensor per_channel_;
    Buffer bias_;
};

// The sum of two tensors.
class Addition : public Layer {
  public:
    explicit Addition(const Call& c) : Layer(c), other_(in_elements(), 5) {
        CHECK(cudnnCreateOpTensorDescriptor(&sum_));
        CHECK(cudnnSetOpTensorDescriptor(sum_, CUDNN_OP_TENSOR_ADD, CUDNN_DATA_FLOAT, CUDNN_NOT_PROPAGATE_NAN));
        tensor_bytes += other_.bytes();
    }
    ~Addition() override { cudnnDestroyOpTensorDescriptor(sum_); }
    cudnnStatus_t forward(cudnnHandle_t dnn) override {
        return cudnnOpTensor(dnn, sum_, &ONE, x_shape, x.data(), &ONE, x_shape, other_.data(), &ZERO, y_shape, y.data());
    }

  private:
    Buffer other_;
    cudnnOpTensorDescriptor_t sum_;
};

// Rows of `width` values, of blockIdx.y, that begin every `from_pitch` and `to_pitch` of them.
template <typename T>
__global__ void copy_rows(const T* from, size_t from_pitch, T* to, size_t to_pitch, size_t width) {
    const size_t column = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (column < width) to[blockIdx.y * to_pitch + column] = from[blockIdx.y * from_pitch + column];
}

// One part of a concatenation: its channels copied into the whole, or backward out of it. cuDNN has no fast call for
// that; frameworks bring a kernel of their own, as Caffe's one launch a part. This one moves 16 bytes a thread.
class Concatenation : public Layer {
  public:
    explicit Concatenation(const Call& c)
        : Layer(c), part_(size_t(c.channels) * c.height * c.width), whole_(size_t(c.out_channels) * c.height * c.width) {
        tensor_bytes = 2 * x.bytes();
        flop = 0;
    }
    cudnnStatus_t forward(cudnnHandle_t dnn) override { return copy(dnn, x.data(), part_, y.data(), whole_); }
    cudnnStatus_t backward(cudnnHandle_t dnn) override { return copy(dnn, dy->data(), whole_, dx->data(), part_); }

  private:
    cudnnStatus_t copy(cudnnHandle_t dnn, const float* from, size_t from_pitch, float* to, size_t to_pitch) {
        cudaStream_t stream;
        CHECK(cudnnGetStream(dnn, &stream));
        constexpr unsigned THREADS = 256, MOST_ROWS = 65535;
        if (call.batch > int(MOST_ROWS)) return CUDNN_STATUS_NOT_SUPPORTED;
        const bool whole_vectors = part_ % 4 == 0 && whole_ % 4 == 0;
        const size_t width = whole_vectors ? part_ / 4 : part_;
        const dim3 blocks(unsigned((width + THREADS - 1) / THREADS), call.batch);
        if (whole_vectors)
            copy_rows<<<blocks, THREADS, 0, stream>>>(reinterpret_cast<const float4*>(from), from_pitch / 4,
                                                      reinterpret_cast<float4*>(to), to_pitch / 4, width);
        else
            copy_rows<<<blocks, THREADS, 0, stream>>>(from, from_pitch, to, to_pitch, width);
        CHECK(cudaGetLastError());
        return CUDNN_STATUS_SUCCESS;
    }
    size_t part_, whole_;  // values of a sample
};

// NCHW to NHWC (TO_NHWC) or back (TO_NCHW).
class LayoutChange : public Layer {
  public:
    explicit LayoutChange(const Call& c) : Layer(c), nhwc_(c.batch, c.channels, c.height, c.width, CUDNN_TENSOR_NHWC) {
        flop = 0;
    }
    cudnnStatus_t forward(cudnnHandle_t dnn) override {
        const bool to_nhwc = call.algorithm == "TO_NHWC";
        return cudnnTransformTensor(dnn, &ONE, to_nhwc ? x_shape : nhwc_, x.data(), &ZERO, to_nhwc ? nhwc_ : x_shape,
                                    y.data());
    }

  private:
    Tensor nhwc_;
};

inline std::unique_ptr<Work> tensors_for(const Call& c, Library& on) {
    const std::string& kind = c.algorithm;
    if (kind == "MAX_POOL" || kind == "AVERAGE_POOL") return std::make_unique<Pooling>(c);
    if (kind == "RELU") return std::make_unique<ReLU>(c);
    if (kind == "LRN") return std::make_unique<ResponseNormalisation>(c);
    if (kind == "BATCH_NORM" || kind == "BATCH_NORM_INFERENCE") return std::make_unique<BatchNormalisation>(c);
    if (kind == "BIAS") return std::make_unique<Bias>(c);
    if (kind == "ADD") return std::make_unique<Addition>(c);
    if (kind == "CONCAT") return std::make_unique<Concatenation>(c);
    if (kind == "TO_NHWC" || kind == "TO_NCHW") return std::make_unique<LayoutChange>(c);
    return std::make_unique<Convolution>(c, on);
}

// A call with its tensors, after a first run, which shows whether the library supports it and loads its kernels.
inline std::unique_ptr<Work> prepare(const Call& c, Library& on) {
    auto work = tensors_for(c, on);
    on.on(nullptr);
    CHECK(cudaDeviceSynchronize());
    auto* layer = dynamic_cast<Layer*>(work.get());
    if (layer && c.backward() && c.algorithm != "CONCAT" && c.algorithm != "BIAS")  // y and what the forward pass saves
        require(layer->forward(on.dnn), "unsupported");
    const cudnnStatus_t status = work->run(on);
    CHECK(cudaDeviceSynchronize());
    if (status != CUDNN_STATUS_SUCCESS) {
        cudaGetLastError();
        throw Unsupported{"unsupported", work->workspace_bytes};
    }
    return work;
}
