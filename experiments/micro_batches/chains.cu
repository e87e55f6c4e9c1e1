// Times convolutions whose batch is done in micro-batches, one after the other: `chains CALLS CHAINS`.
//
// CALLS is as in gpusim/lab/record/convolutions/calls.cuh. A line of CHAINS is `name op op …`: calls of one convolution, whose
// micro-batches together are its batch. Each takes its part of the tensors, all reuse one workspace; where they give a
// gradient of the filter, all but the first add to it (beta = 1). Prints name,ms_warm,ms_cold: a chain after itself, and
// after a read of 512 MiB.
#include "../../gpusim/lab/record/convolutions/timing.cuh"

class MicroBatches : public Work {
  public:
    MicroBatches(const std::vector<Call>& calls, Library& on) : Work(whole(calls)) {
        const size_t taps = size_t(call.channels) * call.filter_height * call.filter_width;
        x_ = std::make_unique<Buffer>(in_elements(), 1);
        w_ = std::make_unique<Buffer>(call.out_channels * taps, 2);
        y_ = std::make_unique<Buffer>(out_elements(), 3);
        for (const Call& part : calls) {
            parts_.push_back(std::make_unique<Convolution>(part, on));
            workspace_bytes = std::max(workspace_bytes, parts_.back()->workspace_bytes);
        }
        space_ = std::make_unique<Buffer>(workspace_bytes / 4 + 1);
    }
    cudnnStatus_t run(Library& on) override {
        float *x = x_->data(), *y = y_->data();
        const float* beta = &ZERO;
        for (const auto& part : parts_) {
            const cudnnStatus_t status = part->run(on, x, w_->data(), y, space_->data(), *beta);
            if (status != CUDNN_STATUS_SUCCESS) return status;
            if (call.direction == "bwd_filter") beta = &ONE;
            x += size_t(part->call.batch) * call.channels * call.height * call.width;
            y += size_t(part->call.batch) * call.out_channels * call.out_height() * call.out_width();
        }
        return CUDNN_STATUS_SUCCESS;
    }

  private:
    static Call whole(const std::vector<Call>& calls) {
        Call all = calls[0];
        all.batch = 0;
        for (const Call& part : calls) all.batch += part.batch;
        return all;
    }
    std::unique_ptr<Buffer> x_, w_, y_, space_;
    std::vector<std::unique_ptr<Convolution>> parts_;
};

int main(int count, char** arguments) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return EXIT_NO_GPU;
    if (count != 3) return EXIT_FAILED;
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(nullptr));
    std::map<std::string, Call> calls;
    for (const Call& call : read_calls(arguments[1])) calls[call.op] = call;
    std::ifstream chains(arguments[2]);
    Library library;
    Timer timer;
    const cudaStream_t stream = new_stream();
    puts("name,ms_warm,ms_cold");
    for (std::string line; getline(chains, line);) {
        std::istringstream fields(line);
        std::string name, op;
        std::vector<Call> parts;
        fields >> name;
        while (fields >> op) parts.push_back(calls.at(op));
        try {
            MicroBatches work(parts, library);
            library.on(stream);
            require(work.run(library), "unsupported");
            CHECK(cudaDeviceSynchronize());
            const double warm = timer.ms(work, library, stream, 9), cold = timer.ms(work, library, stream, 9, 1, true);
            printf("%s,%.6f,%.6f\n", name.c_str(), warm, cold);
        } catch (const Unsupported& unsupported) {
            fprintf(stderr, "%s: %s\n", name.c_str(), unsupported.why.c_str());
        }
        fflush(stdout);
    }
    return 0;
}
